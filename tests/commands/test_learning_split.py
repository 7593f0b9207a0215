"""Settings with which nothing could be learned are refused by name."""

from __future__ import annotations

import pytest

from streamglm.commands.learning import refuse
from streamglm.config import Settings
from streamglm.errors import KvSplitWithLearnConversations


def test_the_split_and_learning_are_refused_together() -> None:
    settings = Settings(kv_split=True, ranks=2, learn_conversations="somewhere")
    with pytest.raises(KvSplitWithLearnConversations, match="--kv-split and --learn-conversations"):
        refuse(settings, keeps=True)
    assert "--kv-split" in KvSplitWithLearnConversations.remedy
