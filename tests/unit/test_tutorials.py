"""The tutorials' pages are what their scripts make, with the project's code as it is."""

import re

import matplotlib.pyplot as plt
import pytest

from datasets.dataset import DatasetUnavailable
from workflow.pages import tutorials

SCRIPTS = sorted(tutorials.FOLDER.glob("*.py"))


@pytest.mark.parametrize(  # the one that makes its own data searches 20,000 samples again and again
    "script", [pytest.param(path, marks=[pytest.mark.slow] * (path.stem == "alarm"), id=path.stem) for path in SCRIPTS]
)
def test_a_tutorial_makes_its_page(script, tmp_path):
    try:
        made = tutorials.page(script, tmp_path)
    except DatasetUnavailable as error:
        pytest.skip(str(error))
    page = script.with_suffix(".md").read_text(encoding="utf-8")
    assert made == page, "make tutorials"
    pictures = re.findall(r"^!\[[^]]+\]\(([\w-]+\.png)\)$", page, re.MULTILINE)
    assert pictures
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(pictures)
    assert {path.name for path in script.parent.glob(f"{script.stem}-*.png")} == set(pictures)


def test_a_page_has_text_code_what_was_printed_and_pictures(tmp_path):
    script = tmp_path / "toy.py"
    script.write_text(
        "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nimport matplotlib.pyplot as plt\n\nprint('seven')\n\n"
        "# %%\nfig, ax = plt.subplots()\nfig.set_label('An empty square')\n"
    )
    plt.figure()  # of somebody else
    assert tutorials.page(script, tmp_path).split("\n\n") == [
        "<!-- Made from toy.py by `make tutorials`: edit that file. -->",
        "# Title",
        "Words.",
        "```python\nimport matplotlib.pyplot as plt",
        "print('seven')\n```",
        "```text\nseven\n```",
        "```python\nfig, ax = plt.subplots()\nfig.set_label('An empty square')\n```",
        "![An empty square](toy-1.png)\n",
    ]
    assert (tmp_path / "toy-1.png").is_file()


def test_mistakes_name_the_line_of_the_script(tmp_path):
    script, before = tmp_path / "toy.py", plt.get_fignums()
    script.write_text("# %% [markdown]\n# # Title\n\n# %%\n\nx = 1\nraise ValueError(x)\n")
    with pytest.raises(ValueError, match="1") as raised:
        tutorials.page(script, tmp_path)
    assert raised.traceback[-1].lineno == 6  # from 0
    script.write_text("# %%\nimport matplotlib.pyplot as plt\nplt.figure()\n")
    with pytest.raises(ValueError, match=r"toy-1: the figure has no label; say what it shows with fig\.set_label"):
        tutorials.page(script, tmp_path)
    assert plt.get_fignums() == before


def test_a_page_stays_where_its_data_cannot_be_had(tmp_path, monkeypatch, capsys):
    script = tmp_path / "toy.py"
    script.write_text(
        "# %%\nfrom datasets.dataset import DatasetUnavailable\n\nraise DatasetUnavailable('it is in the attic')\n"
    )
    monkeypatch.setattr(tutorials, "FOLDER", tmp_path)
    assert tutorials.main([]) == 1
    assert "toy.py: left as it is: it is in the attic" in capsys.readouterr().err
    assert not script.with_suffix(".md").exists()
