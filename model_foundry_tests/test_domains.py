"""What a prompt is about: two labelled tables, the mechanics of hints, and the language of a text.

``TUNED`` was written before the hints were and was used to tune them. ``HELD_OUT`` was written afterwards and measured
once before anything was changed because of it; its first figure stands beside the test.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_foundry.config import DomainConfig
from model_foundry.domains import Classification, classify, language_of

DOMAINS = {name: DomainConfig(candidates=["some-model"]) for name in ("code", "japanese", "general")}

TUNED = [
    # code, in the style of function-completion and chat benchmarks
    (
        "code",
        'def running_total(values: list[int]) -> list[int]:\n    """Cumulative sums, '
        'first to last.\n    >>> running_total([1, 2])\n    [1, 3]\n    """\n',
    ),
    (
        "code",
        "from typing import List\n\ndef drop_short_words(words: List[str], n: int) -> "
        'List[str]:\n    """ Keep the words of at least n letters. """\n',
    ),
    ("code", "Write a Python function that checks whether a string is a palindrome."),
    ("code", "Implement a LRU cache in C++ with O(1) lookups."),
    (
        "code",
        "Given an array of integers, return the indices of the two numbers that add up "
        "to a target. Provide the algorithm and its complexity.",
    ),
    ("code", "Fix the bug in this snippet:\n```js\nfor (var i = 0; i < 3; i++) setTimeout(() => console.log(i))\n```"),
    ("code", "Why does this raise a TypeError: 'NoneType' object is not subscriptable?"),
    ("code", "SELECT name, count(*) FROM orders GROUP BY name -- how do I keep only names with more than 5 orders?"),
    ("code", "Explain the difference between a mutex and a semaphore with a Go example."),
    ("code", "Write a regex that matches ISO dates."),
    ("code", "Refactor this class so that it can be unit tested."),
    ("code", "Pythonで素数を列挙する関数を書いて"),
    ("code", "次のSQLクエリを高速化してください。"),
    ("code", "JavaScriptで配列をシャッフルする方法を教えて"),
    ("code", "このコードのバグを見つけて直してください:\nint main() { int a[3]; a[3] = 1; }"),
    ("code", "メールアドレスを検証する正規表現を書いてください"),
    ("code", "クイックソートを実装して、計算量を説明してください。"),
    ("code", "Dockerfileを小さくするには?"),
    # japanese: the task is handling Japanese
    ("japanese", "次の日本語を敬語に直して: 明日そっちに行くよ"),
    ("japanese", "Translate this into Japanese: The meeting has been moved to Friday."),
    ("japanese", "以下の文章を校正してください。「私わ昨日、友達と映画を見にいきました」"),
    ("japanese", "取引先に納期の遅れをお詫びするビジネスメールを書いてください。"),
    ("japanese", "「生憎」の読み方を教えてください。"),
    ("japanese", "秋をテーマに俳句を一句詠んでください。"),
    ("japanese", "How do I read the kanji 今日 in this sentence?"),
    ("japanese", "Rewrite the following sentence in keigo: これを見てください。"),
    ("japanese", "What is the difference between the particles は and が?"),
    ("japanese", "次の英文を和訳してください: Practice makes perfect."),
    ("japanese", "この文を英語に翻訳して: 猿も木から落ちる"),
    ("japanese", "「一石二鳥」という四字熟語を使って短い文を作ってください。"),
    ("japanese", "次の文を関西弁に言い換えて: とても面白いですね。"),
    ("japanese", "漢字をひらがなに直して: 経済産業省"),
    ("japanese", "お世話になった上司への退職の挨拶文を作成してください。"),
    ("japanese", "Proofread my Japanese: 昨日は東京に行きますた。"),
    ("japanese", "「食べる」の謙譲語は何ですか。"),
    ("japanese", "より自然な日本語に書き換えてください: 私はあなたの手紙を受け取ることを楽しみにしています。"),
    # general
    ("general", "What is the capital of Australia?"),
    ("general", "大きなデータを分析して"),
    ("general", "Write a haiku about the sea."),
    ("general", "Natalia packs 12 boxes with 8 apples each and sells half. How many apples are left?"),
    ("general", "日本で一番高い山は何ですか?"),
    ("general", "量子コンピュータの仕組みを日本語で説明してください。"),
    ("general", "Compose an engaging travel blog post about a trip to Kyoto."),
    ("general", "おすすめのダイエット方法を3つ教えてください。"),
    ("general", "What function does the liver have?"),
    ("general", "Summarise the causes of the First World War in two sentences."),
    ("general", "Is it safe to eat raw eggs in Japan?"),
    ("general", "太郎はりんごを5個持っています。2個食べると残りは何個ですか。"),
    ("general", "Translate into French: Good morning, everyone."),
    ("general", "Explain the Japanese economy of the 1980s."),
    ("general", "Which class of drugs do beta blockers belong to?"),
    ("general", "会議の議題を考えてください。"),
    ("general", "電子レンジで卵を温めるとどうなりますか?"),
    ("general", "Pretend you are a pirate and tell me about your day."),
]

TUNED += [  # the first held-out half: 37 of 50 when first measured, tuned on since
    (
        "code",
        'def count_vowels(text: str) -> int:\n    """\n    Number of vowels in the text, '
        'y excluded.\n    >>> count_vowels("banana")\n    3\n    """',
    ),
    ("code", "What does the keyword yield do, and when would I use a generator instead of a list?"),
    ("code", "My loop never terminates: while (i < 10) { sum += i; } What is wrong?"),
    ("code", "Create a REST endpoint with FastAPI that returns the current time."),
    ("code", "Develop a C++ program that reads a text file line by line and counts how often each word occurs."),
    ("code", "How can I merge two sorted arrays in O(n)?"),
    ("code", "Convert this curl command into Rust with reqwest."),
    ("code", "Write unit tests for the following: `add = lambda a, b: a + b`"),
    ("code", "What is printed by print([x**2 for x in range(4)])?"),
    ("code", "git rebase と git merge の違いを説明してください。"),
    ("code", "フィボナッチ数列を求めるプログラムをRubyで書いてください。"),
    ("code", "次の関数をTypeScriptに書き換えて: function f(a){return a+1}"),
    ("code", "二分探索を実装してください。"),
    ("code", "CSVファイルを読み込んで列ごとの平均を出すスクリプトが欲しい"),
    ("code", "このエラーの原因は何? ModuleNotFoundError: No module named 'numpy'"),
    ("japanese", "「行きます」を尊敬語にしてください。"),
    ("japanese", "次の文の誤りを直してください。「彼は昨日学校へ行くました。」"),
    ("japanese", "Please translate the following to natural Japanese: I'm running late, sorry!"),
    ("japanese", "How would I politely decline an invitation in Japanese?"),
    ("japanese", "Convert these words to hiragana: 学校, 先生, 友達"),
    ("japanese", "お客様への謝罪メールの文面を考えてください。"),
    ("japanese", "「橋」と「箸」のアクセントの違いは?"),
    ("japanese", "「雨」を含むことわざを一つ挙げて、意味を説明してください。"),
    ("japanese", "この文章をもっと丁寧な言い方に変えて: 早く返事をくれ。"),
    ("japanese", "次の文を英語に訳してください。「駅まで歩いて十分です。」"),
    ("japanese", "春の桜を詠んだ短歌を作ってください。"),
    ("japanese", "Which is correct: 私が好きです or 私は好きです? Explain the nuance."),
    ("japanese", "「頑張る」を使った例文を三つ作ってください。"),
    ("japanese", "Translate from Japanese to English: 雨が降りそうです。"),
    ("japanese", "結婚式のスピーチの原稿を日本語で書いてください。"),
    ("japanese", "Correct the mistakes: わたしわ にほんごお べんきょうします"),
    ("general", "Who wrote the novel in which a man wakes up as an insect?"),
    ("general", "A train travels 180 km in 3 hours. What is its average speed?"),
    ("general", "Draft a polite email asking my landlord to repair the heating."),
    ("general", "If all bloops are razzies and some razzies are lazzies, are some bloops lazzies?"),
    ("general", "List five healthy breakfast ideas."),
    ("general", "What is the dress code for a black-tie wedding?"),
    ("general", "How do vaccines work? Answer as if I were ten years old."),
    ("general", "What languages are spoken in Switzerland?"),
    ("general", "Describe a vivid and unique character for a fantasy story."),
    ("general", "京都のおすすめ観光地を教えて"),
    ("general", "光合成とは何か、簡単に説明してください。"),
    ("general", "水は何度で沸騰しますか?"),
    ("general", "前提: 男性が公園で犬を散歩させている。仮説: 男性が屋外にいる。含意か矛盾か中立か答えてください。"),
    ("general", "犬と猫、一人暮らしで飼いやすいのはどちらですか?理由も教えてください。"),
    ("general", "日本語で答えてください: フランスの首都はどこですか?"),
    ("general", "新商品のキャッチコピーを5つ提案して"),
    ("general", "What time is it in Tokyo when it is noon in London?"),
    ("general", "Write a short story about a snake called Monty."),
    ("general", "Which Japanese cities have hosted the Olympics?"),
]

HELD_OUT = [
    (
        "code",
        'def largest_gap(numbers):\n    """Return the largest difference between '
        'neighbours in the sorted list."""\n    ',
    ),
    ("code", "How do I reverse a string in Java without using a library?"),
    ("code", "What is the difference between == and is in Python?"),
    ("code", "Write a shell one-liner that deletes all files older than 7 days."),
    ("code", "Given a binary tree, return its depth."),
    ("code", "Explain what this does: SELECT city, AVG(age) FROM users GROUP BY city"),
    ("code", "My React component re-renders on every keystroke. How do I avoid that?"),
    ("code", "辞書のキーを値でソートするPythonのコードを教えてください。"),
    ("code", "HTMLとCSSで中央寄せする方法は?"),
    ("code", "このメソッドを非同期処理に書き換えてください。"),
    ("japanese", "次の文を丁寧語に直してください: これ、いくら?"),
    ("japanese", "「お疲れ様」と「ご苦労様」の違いを説明してください。"),
    ("japanese", "Translate to Japanese: Where is the nearest station?"),
    ("japanese", "社内向けに、会議の日程変更を知らせるメールを書いて。"),
    ("japanese", "「憂鬱」は何と読みますか。"),
    ("japanese", "Explain how to use ～ながら with two example sentences."),
    ("japanese", "次の文章を小学生にも分かるやさしい日本語にしてください。"),
    ("japanese", "誤字があれば訂正してください: 以上、よろしくお願い致しまう。"),
    ("japanese", "Write a short self-introduction in Japanese for a new employee."),
    ("japanese", "「水」を季語にした一句をお願いします。"),
    ("general", "What is the boiling point of ethanol?"),
    ("general", "A shop sells pens at 3 for 2 euros. How much do 12 pens cost?"),
    ("general", "Should I learn to play the piano or the guitar first?"),
    ("general", "Write a persuasive speech about protecting the oceans."),
    ("general", "What is the role of a judge in a criminal trial?"),
    ("general", "江戸幕府を開いたのは誰ですか。"),
    ("general", "明日の遠足に持っていくものを箇条書きにして"),
    ("general", "1から10までの整数の合計はいくつですか?"),
    ("general", "眠れないときはどうすればいいですか?"),
    ("general", "What are popular Japanese dishes for beginners?"),
]


def right(table: list[tuple[str, str]]) -> list[bool]:
    return [classify(text, DOMAINS, "general").domain == expected for expected, text in table]


def test_the_prompts_that_the_hints_were_tuned_on_are_told_apart() -> None:
    assert sum(right(TUNED)) >= 103
    assert len(TUNED) == 104


def test_prompts_that_nothing_was_tuned_on_are_told_apart_as_well_as_when_first_measured() -> None:
    assert sum(right(HELD_OUT)) >= 25  # of 30, on the first and only measurement
    assert len(HELD_OUT) == 30


def test_a_hint_counts_only_when_its_domain_is_defined() -> None:
    without_code = {name: DOMAINS[name] for name in ("japanese", "general")}
    assert classify("Write a Python function.", without_code, "general").domain == "general"
    assert classify("Write a Python function.", {}, "elsewhere").domain == "elsewhere"


def test_a_translation_goes_to_the_translation_domain_when_there_is_one() -> None:
    text = "Translate this into Japanese: Good luck!"
    assert classify(text, DOMAINS, "general").domain == "japanese"
    with_translation = DOMAINS | {"translation": DOMAINS["general"]}
    assert classify(text, with_translation, "general").domain == "translation"
    assert classify("次の日本語を敬語に直して", with_translation, "general").domain == "japanese"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("summarizing", "Summarize the following article."),
        ("summarizing", "次の記事を要約してください。"),
        ("reasoning", "Solve it step by step: a farmer has 17 sheep."),
        ("math", "この方程式を解いてください。"),
        ("translation", "この手紙をフランス語に翻訳して"),
    ],
)
def test_other_well_known_names_bring_their_hints(name: str, text: str) -> None:
    domains = {"general": DOMAINS["general"], name: DOMAINS["general"]}
    assert classify(text, domains, "general").domain == name


def test_configured_keywords_match_whole_latin_words_without_case_and_other_scripts_anywhere() -> None:
    cooking = DomainConfig(candidates=["m"], keywords=["Bake", "slow cooker", "料理", "C++"], patterns=[r"\d+ ?°C"])
    domains = {"cooking": cooking, "general": DOMAINS["general"]}

    def domain(text: str) -> str:
        return classify(text, domains, "general").domain

    assert domain("How do I BAKE bread?") == "cooking"
    assert domain("Who is the baker?") == "general"
    assert domain("Use a Slow  Cooker!") == "cooking"
    assert domain("slow cookers") == "general"
    assert domain("家庭料理のこつ") == "cooking"
    assert domain("Preheat to 180 °C") == "cooking"
    assert domain("I like c++") == "cooking"


def test_the_reason_names_the_hints_and_the_scores() -> None:
    assert classify("次の日本語を敬語に直して", DOMAINS, "general") == Classification("japanese", "japanese 4: 敬語")
    assert classify("hello", DOMAINS, "general").reason == "no hint of any domain, so the default general"
    assert "no domain reaches 2 (code 1: function)" in classify("liver function", DOMAINS, "general").reason


def test_an_instruction_is_found_at_the_head_and_at_the_tail_of_a_long_text() -> None:
    story = "Once upon a time there was a king. " * 30_000
    assert classify("次の文を校正して。" + story, DOMAINS, "general").domain == "japanese"
    assert classify(story + "次の文を校正して。", DOMAINS, "general").domain == "japanese"
    assert classify(story, DOMAINS, "general").domain == "general"


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Hello, world"),
        ("en", "Où est la gare ?"),
        ("ja", "大きなデータを分析して"),
        ("ja", "Pythonで素数を列挙する関数を書いて"),
        ("ja", "ｶﾀｶﾅ"),
        ("ja", "東京都知事"),
        ("en", "Translate to English: これはペンです"),
        ("zh", "请把这句话翻译成英语"),
        ("zh", "澳大利亚的首都是什么?"),
        ("ko", "안녕하세요"),
        ("ru", "Привет, как дела?"),
        ("other", "Γειά σου Κόσμε"),
        ("other", "สวัสดี"),
        ("und", ""),
        ("und", "1 + 1 = 2 ！？"),
        ("und", "🙂"),
    ],
)
def test_the_language_is_told_by_the_script(language: str, text: str) -> None:
    assert language_of(text) == language


@given(st.text(st.characters()), st.text(st.characters()))
def test_any_text_has_a_domain_and_a_language(text: str, keyword: str) -> None:
    domains = DOMAINS | {"own": DomainConfig(candidates=["m"], keywords=[keyword])}
    assert classify(text, domains, "general").domain in domains
    assert language_of(text) in {"ja", "zh", "ko", "ru", "en", "other", "und"}
