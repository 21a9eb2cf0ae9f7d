"""Articles in several languages: paragraph by paragraph, resumable."""

from __future__ import annotations

import dagster as dg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.languages import UnknownLanguage, language_name
from model_foundry.paragraphs import paragraphs, together
from model_foundry.partition_run import PartitionRun
from model_foundry.records import ErrorKind, JobStatus, Translate
from model_foundry.translating import doubts_about, outcome_of, pieces_of, request_of, translate_partition
from model_foundry.warehouse.translations import TranslationRow
from model_foundry_tests.builders import a_config, a_job
from model_foundry_tests.flows.skin import Skin, metadata
from model_foundry_tests.flows.test_fleet_flows import TODAY
from model_foundry_tests.inference.scripted import delta, refusal, sse, sse_answer
from model_foundry_tests.sources.conftest import Grounded

LANE = "cpu_inference"
ARTICLE = "---\ntitle: x\n---\n\n# Trains\n\nA train leaves.\n\n```py\nx = 1\n\ny = 2\n```\n\nIt returns.\n"


def article(**fields: object) -> dict[str, object]:
    return {
        "prompt": ARTICLE,
        "model": "small",
        "job_id": "a",
        "translate": {"to": ["ja", "de"], "from": "en"},
        **fields,
    }


def run(grounded: Grounded, instance: dg.DagsterInstance, **config: object) -> dg.ExecuteInProcessResult:
    ops = {"ops": {"article_translations": {"config": config}}} if config else None
    return Skin(grounded.scene, instance).run("answer_prompts", LANE, ops)


def test_an_article_comes_back_in_every_language_with_code_and_front_matter_as_they_were(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.scene.publish(article())
    result = run(grounded, instance)
    answer = grounded.scene.results()["a"]
    whole = ARTICLE.replace("# Trains", "# TRAINS").replace("A train leaves.", "A TRAIN LEAVES.")
    whole = whole.replace("It returns.", "IT RETURNS.")
    assert answer["translations"] == {"ja": whole, "de": whole}
    assert (answer["status"], answer["text"], answer["attempt"]) == ("answered", None, 6)
    assert sorted({a.partition("into ")[2].partition(".")[0] for a in grounded.model.asked}) == ["German", "Japanese"]
    assert all("from English into" in asked for asked in grounded.model.asked)
    shown = metadata(result, "article_translations")
    assert (shown["articles"], shown["translated"], shown["paragraphs"], shown["kept"]) == (1, 1, 6, 4)
    rows = grounded.rows("select language, done, paragraphs, status from article_translations order by language")
    assert [tuple(row.values()) for row in rows] == [("de", 5, 5, "answered"), ("ja", 5, 5, "answered")]
    assert "leaves" not in str(shown).lower()


def test_a_paragraph_that_fails_leaves_the_article_incomplete_and_is_all_that_is_asked_for_again(
    grounded: Grounded, instance: dg.DagsterInstance
) -> None:
    grounded.model.by_text["It returns."] = refusal(400, {"error": "exceeds the available context size"})
    grounded.scene.publish(article(translate={"to": "ja"}))
    run(grounded, instance)
    answer = grounded.scene.results()["a"]
    assert (answer["status"], answer["translations"]) == ("incomplete", {})
    assert "1 of 5 paragraphs have no translation; ja, paragraph 5" in answer["error"]["message"]
    asked = len(grounded.model.asked)
    run(grounded, instance)
    assert len(grounded.model.asked) == asked
    grounded.model.by_text.clear()
    result = run(grounded, instance, retry_failed=True)
    assert len(grounded.model.asked) == asked + 1
    assert metadata(result, "article_translations")["unchanged"] == 4
    assert grounded.scene.results()["a"]["translations"]["ja"].endswith("IT RETURNS.\n")


def test_a_run_that_dies_leaves_its_paragraphs_to_the_next(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    class Died(BaseException):
        pass

    grounded.scene.raw["workers"]["m"]["slots"] = 1
    never = sse(delta(content="…"), 30.0)
    grounded.model.by_text["It returns."] = never
    grounded.scene.publish(article(translate={"to": "ja"}))
    Skin(grounded.scene, instance).run("answer_prompts", "unroutable")  # lands nothing of it, makes the lake

    def die(done: int, total: int) -> None:
        raise Died

    from model_foundry.intake import land_partition
    from model_foundry.prompt_intake import PromptIntake

    foundry = grounded.scene.foundry
    land_partition(foundry, PromptIntake, (TODAY, LANE), run_id="dead")
    with pytest.raises(Died):
        translate_partition(PartitionRun(foundry, TODAY, LANE, run_id="dead", on_progress=die))
    there = grounded.rows("select count(*) as n from translations where status = 'answered'")[0]["n"]
    assert there >= 1
    grounded.model.by_text.clear()
    asked = len(grounded.model.asked)
    run(grounded, instance)
    assert grounded.scene.results()["a"]["status"] == "answered"
    assert len(grounded.model.asked) - asked == 3 - there


def test_an_article_that_nobody_can_translate_now_waits(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    url = grounded.scene.raw["workers"]["m"]["url"]
    grounded.scene.raw["workers"]["m"]["url"] = "http://127.0.0.1:9"
    grounded.scene.publish(article())
    result = run(grounded, instance)
    assert grounded.scene.results() == {}
    assert metadata(result, "article_translations")["status"] in ("waiting", "done")
    assert grounded.rows("select job_id from waiting_jobs where reason is not null") == [{"job_id": "a"}]
    grounded.scene.raw["workers"]["m"]["url"] = url
    run(grounded, instance)
    assert grounded.scene.results()["a"]["status"] == "answered"


def test_a_translation_goes_to_the_translator(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    grounded.scene.raw["roles"] = {"t": {"model": "small", "kind": "translator"}}
    grounded.scene.publish(article(model=None), {"prompt": "x", "translate": {"to": ["xx"]}, "job_id": "b"})
    run(grounded, instance)
    [row] = grounded.rows("select role, model, task, domain from jobs where job_id = 'a'")
    assert (row["role"], row["model"], row["task"]) == ("t", "small", "translate")
    Skin(grounded.scene, instance).run("answer_prompts", "unroutable")
    assert "'xx' is no language; allowed: codes" in grounded.scene.results()["b"]["error"]["message"]


def test_an_answer_that_is_cut_off_or_empty_is_no_translation(grounded: Grounded, instance: dg.DagsterInstance) -> None:
    grounded.model.by_text["It returns."] = sse(delta(content="I"), delta("length"), b"data: [DONE]\n\n")
    grounded.model.by_text["Trains"] = sse_answer("  ")
    grounded.scene.publish(article(translate={"to": "ja"}))
    run(grounded, instance)
    found = grounded.rows("select error_message from translations where status = 'incomplete' order by paragraph")
    assert [row["error_message"] for row in found] == [
        "the model answered with nothing",
        "the translation was cut off at max_tokens",
    ]


# -- pure ----------------------------------------------------------------------------------------------------------


@given(st.text(st.sampled_from("a \n`~-#\t!.日["), max_size=80))
def test_paragraphs_put_together_are_the_article_again(text: str) -> None:
    pieces = paragraphs(text)
    lines = text.split("\n")
    while lines and not lines[0].strip():
        lines.pop(0)
    assert together(pieces, [p.text for p in pieces]) == "\n".join(lines)
    assert all(p.text.strip() for p in pieces)


@pytest.mark.parametrize(
    ("text", "is_prose"),
    [
        ("Hello", True),
        ("- 1\n- zwei", True),
        ("日本語", True),
        ("---", False),
        ("```\ncode\n```", False),
        ("    indented code", False),
        ("![a picture](x.png)", False),
        ("https://example.org/a", False),
        ("<!-- hidden -->", False),
        ("<div>", False),
        ("<b>bold</b>", True),
        ("[1]: https://example.org", False),
        ("3.14 + 2", False),
    ],
)
def test_only_prose_is_translated(text: str, is_prose: bool) -> None:
    [piece] = paragraphs(text)
    assert piece.is_prose is is_prose


def test_a_request_holds_the_text_as_it_is_even_with_braces_in_it() -> None:
    job = a_job(prompt="say {target} and {source}", translate=Translate(("ja",)))
    config = a_config().translation
    [piece] = pieces_of(job, config)
    content = request_of(piece, config).messages[0]["content"]
    assert content.startswith("Translate the following text from its language into Japanese.")
    assert content.endswith("say {target} and {source}")


def test_what_looks_wrong_is_noted() -> None:
    source = "See `ls -l` at https://example.org/a for the whole and true story of it."
    assert doubts_about(source, source)[0].startswith("untranslated_suspect")
    assert [d.partition(":")[0] for d in doubts_about(source, "Siehe")] == ["address_lost", "code_lost"]
    assert doubts_about(source, "Siehe `ls -l`: https://example.org/a") == ()


def test_an_article_ends_by_its_paragraphs() -> None:
    def row(status: str, kind: str | None = None) -> TranslationRow:
        return TranslationRow("a", "ja", 0, "s", "d", status, text="t", error_kind=kind, error_message="m")

    assert outcome_of([row("answered"), row("waiting")]) is None
    assert outcome_of([row("answered"), row("kept")]) == (JobStatus.ANSWERED, None, None)
    assert (outcome_of([row("answered"), row("failed", "timeout")]) or ("",))[0] is JobStatus.INCOMPLETE
    assert (outcome_of([row("kept"), row("failed", "timeout")]) or ("", ""))[:2] == (
        JobStatus.FAILED,
        ErrorKind.TIMEOUT,
    )
    assert (outcome_of([row("answered"), row("failed", "cancelled")]) or ("",))[0] is JobStatus.CANCELLED
    assert (outcome_of([row("failed", "deadline")]) or ("",))[0] is JobStatus.EXPIRED


def test_languages_are_named_by_their_codes() -> None:
    assert [language_name(c) for c in ("ja", "de", "pt-BR")] == ["Japanese", "German", "Portuguese (Brazil)"]
    for odd in ("xx", "japanese language", "", "ja\n", "../etc"):
        with pytest.raises(UnknownLanguage, match="allowed: codes"):
            language_name(odd)
