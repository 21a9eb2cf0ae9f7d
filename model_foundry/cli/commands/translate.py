"""``foundry translate``: publish an article for translation, and write its translations when they come."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from model_foundry.cli.commands.submit import new_job_id, publish_and_wait
from model_foundry.cli.output import ConfigOption, JsonOption, console, errors, print_json
from model_foundry.errors import ConfigError
from model_foundry.languages import UnknownLanguage, language_name
from model_foundry.runtime import Foundry


def translate(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The article: text or Markdown, UTF-8.")],
    to: Annotated[list[str], typer.Option("--to", help="Into which language: ja, de, pt-BR. Give it again for more.")],
    source: Annotated[str | None, typer.Option("--from", help="The language it is written in.")] = None,
    model: Annotated[str | None, typer.Option(help="Which model must translate [default: the translator's].")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the translations [default: beside the article].", file_okay=False)
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Of one paragraph's translation, at most.")] = None,
    correlation_id: Annotated[str | None, typer.Option(help="Ties it to a session.")] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for them and write the files.")] = True,
    timeout_s: Annotated[float, typer.Option("--timeout", help="How long to wait, in seconds.", min=1)] = 3600.0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
) -> None:
    """Translate an article, paragraph by paragraph; article.md becomes article.ja.md and so on.

    Exit 0: done; 1: not all of it was translated; 4: time ran out, and it goes on without us.
    """
    foundry = Foundry.load(config)
    try:
        text = file.read_bytes().decode("utf-8-sig")
        for code in (*to, *filter(None, (source,))):
            language_name(code)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason} at byte {error.start}") from None
    except UnknownLanguage as error:
        raise ConfigError(str(error)) from None
    message: dict[str, Any] = {
        "job_id": new_job_id(),
        "prompt": text,
        "translate": {"to": to, **({"from": source} if source else {})},
        "model": model,
        "correlation_id": correlation_id,
        "params": {"max_tokens": max_tokens} if max_tokens else None,
    }
    message = {key: value for key, value in message.items() if value is not None}
    results = publish_and_wait(foundry, [message], wait, timeout_s, as_json=as_json)
    if results is None:
        return
    [result] = results
    folder = out or file.parent
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for language, translation in (result.get("translations") or {}).items():
        target = folder / f"{file.stem}.{language}{file.suffix}"
        target.write_text(translation, encoding="utf-8")
        written.append({"language": language, "file": str(target)})
        if not as_json:
            console.print(f"{target}", markup=False)
    if as_json:
        print_json({"job_id": result["job_id"], "status": result["status"], "files": written, "error": result["error"]})
    if result["status"] != "answered":
        why = result.get("error") or {}
        errors.print(f"[bold red]{result['status']}[/] ", end="")
        errors.print(f"{why.get('kind')}: {why.get('message')}", markup=False)
        errors.print("do: materialize article_translations with retry_failed; what is there is kept", markup=False)
        raise typer.Exit(1)
