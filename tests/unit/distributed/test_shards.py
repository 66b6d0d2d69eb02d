"""The settings of a folder of shards, which anything may have written."""

import pytest

from gpupc_impl import InvalidProblem
from gpupc_impl.distributed.shards import SETTINGS, ShardFolder


@pytest.mark.parametrize("content", ['{"rows": 1e400}', "[[1, 2]]", "[]", "null", "1e400", '"ab"'])
def test_settings_that_no_search_wrote_are_refused(tmp_path, content):
    (tmp_path / SETTINGS).write_text(content)
    folder = ShardFolder(tmp_path)
    assert folder.rows_claimed() == 0
    with pytest.raises(InvalidProblem, match=r"holds shards of|search\.json is damaged .*; remove the folder, or name"):
        folder.claim({"fingerprint": None, "rows": 32})
