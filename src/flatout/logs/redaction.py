"""Secrets are taken out of a line before it is quoted."""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_NAMED = re.compile(
    r"""(?ix)
    (?P<name> [\w.-]{0,40} (?: api[_-]?key | secret | token | passw(?:or)?d | passwd | credential s? | private[_-]?key
      | access[_-]?key (?:[_-]?id)? | authorization | signature | x-amz-\w[\w-]* | \bsig ) [\w.-]{0,40} ["']? )
    (?P<sign> \s* (?: [:=] | => ) \s* (?: bearer \s+ | basic \s+ )? | \s+ (?= \S* \d) (?= \S{16,}) )
    (?P<value> "[^"]*" | '[^']*' | [^\s,;&)}\]]+ )
    """
)
_NAMES = re.compile(r"(?i)key|secret|token|pass|credential|authorization|signature|x-amz|sig")
_ALONE = re.compile(
    r"""(?x)
      \b (?: AKIA | ASIA ) [0-9A-Z]{16} \b                       # AWS
    | \b gh[pousr]_ \w{20,} | \b github_pat_ \w{20,}             # GitHub
    | \b hf_ [A-Za-z0-9]{20,}                                     # Hugging Face
    | \b sk- [\w-]{16,} | \b xox[abprs]- [\w-]{10,}               # OpenAI and Anthropic, Slack
    | \b AIza [\w-]{30,} | \b ya29\. [\w-]{20,}                   # Google
    | \b glpat- [\w-]{16,} | \b pypi- [\w-]{30,}                  # GitLab, PyPI
    | \b eyJ [\w-]{10,} \. [\w-]{10,} \. [\w-]*                   # JSON web token
    | \b wandb_v1_ \w{20,} | (?<= [Ww]andb\ login\ ) \S+ | \b local- [0-9a-f]{40} \b
    | \b [0-9a-f]{40} \b (?= \s* (?: $ | ["'] ) )                 # a W&B key, or a commit, at the end
    | -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*
    """
)
_IN_ADDRESS = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_NUMBER = re.compile(r"[\d.,]+(?:[kKMGT]|e[+-]?\d+)?(?:/s)?\Z")


def redacted(text: str) -> str:
    """``text`` with passwords, keys and tokens replaced by a word.

    A plain number stays, since "tokens: 1024" counts something.
    """
    text = _IN_ADDRESS.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _ALONE.sub(HIDDEN, text)
    return _NAMED.sub(_hide, text) if _NAMES.search(text) else text


def _hide(found: re.Match[str]) -> str:
    value = found["value"]
    if HIDDEN in value or (_NUMBER.match(value.strip("\"'")) and "pass" not in found["name"].lower()):
        return found[0]
    return f"{found['name']}{found['sign']}{HIDDEN}"
