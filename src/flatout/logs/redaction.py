"""Secrets are taken out of a line before it is quoted."""

from __future__ import annotations

import re

HIDDEN = "[hidden]"
_NAMED = re.compile(
    r"""(?ix)
    (?P<name> (?<! [\w.-]) [\w.-]{0,80}?
      (?: key | secret | token | pass | pwd | credential | auth | signature | x-amz | \b sig \b ) [\w.-]{0,40}+ ["']?+ )
    (?P<sign> \s* (?: [:=] | => ) \s* (?: bearer \s+ | basic \s+ )? | \s+ (?: is | was ) \s+ | \s+ )
    (?P<value> "[^"]{0,999}" | '[^']{0,999}' | (?! --) [^\s,;&)}\]] \S{0,999} )
    """
)
_NAMES = re.compile(r"(?i)key|secret|token|pass|pwd|credential|auth|signature|x-amz|sig")
# Parts of a name: of api_key, apiKey and --api-key they are the same.
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PASSWORDS = {"password", "passwd", "pwd", "passphrase", "passcode"}
_SECRET = {*_PASSWORDS, "secret", "token", "credential", "credentials", "apikey", "authorization", "signature", "sig"}
# Before "key"; others are secret where the value looks drawn at random.
_KEYS = {"api", "access", "private", "secret", "auth", "account", "storage", "license", "wandb", "ssh", "service"}
# Before the "token" of a tokenizer.
_OF_TEXT = {"pad", "sep", "bos", "eos", "unk", "cls", "mask", "special", "image", "max", "num", "next", "start", "end"}
_LONG = 999  # characters of a value that are looked at
_SPACE_OR_END = re.compile(r"\s|\Z")
_END = re.compile(r"[,;&)}\]]")
_BY_PROGRAM = re.compile(
    r"(?P<before>\b(?:mysql\w*|mariadb\w*|sshpass)\b(?:\s+\S+){0,12}?\s+-p|\bcurl\b.{0,200}?\s-u\s*[^\s:]+:)(?P<value>[^\s;|]+)"
)
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
_IN_ADDRESS = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]{0,30}+://)[^\s/@]+@", re.IGNORECASE)
_NUMBER = re.compile(r"[\d.,]+(?:[kKMGT]|e[+-]?\d+)?(?:/s)?\Z")


def redacted(text: str) -> str:
    """``text`` with passwords, keys and tokens replaced by a word.

    A plain number stays, since "tokens: 1024" counts something.
    """
    text = _IN_ADDRESS.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _BY_PROGRAM.sub(rf"\g<before>{HIDDEN}", text)
    text = _ALONE.sub(HIDDEN, text)
    return _named_hidden(text) if _NAMES.search(text) else text


def _named_hidden(text: str) -> str:
    parts, done = [], 0
    while found := _NAMED.search(text, done):
        name, sign, value = found["name"], found["sign"], found["value"]
        whole = value[0] in "\"'" or name.startswith("--") or any(one in name.lower() for one in _PASSWORDS)
        if whole:
            value = value.rstrip(",;)}]")
        elif end := _END.search(value):
            value = value[: end.start()]
        secret = _is_secret(name.strip("\"'"), sign, value.strip("\"'"))
        parts += [text[done : found.start("value")], HIDDEN * secret]
        # A value that is none may be the name of the next.
        done = found.start("value") + len(value) * secret
        if secret and len(value) >= _LONG:
            done = _SPACE_OR_END.search(text, done).start()  # type: ignore[union-attr]
    return "".join((*parts, text[done:]))


def _is_secret(name: str, sign: str, value: str) -> bool:
    """Whether a value must not be shown, by its name, what stands between them, and its look."""
    parts = [part.lower() for part in _PART.findall(name)]
    if not parts or value.startswith(HIDDEN.rstrip("]")):
        return False
    is_option, random = name.startswith("--"), len(value) >= 16 and any(one.isdigit() for one in value)
    passwords = not _PASSWORDS.isdisjoint(parts) or (parts[-1] == "pass" and (is_option or name.isupper()))
    if _NUMBER.match(value):
        return passwords and sign.strip().lower() not in ("", "is", "was")
    if "key" in parts:
        named = not _KEYS.isdisjoint(parts)
    else:
        named = not _SECRET.isdisjoint(parts) and (parts[-1] != "token" or _OF_TEXT.isdisjoint(parts))
    named = named or passwords or parts[:2] == ["x", "amz"] or (is_option and parts[-1] == "auth")
    if sign.strip().lower() in ("is", "was"):
        return passwords
    if not sign.strip() and not is_option:  # two words of a sentence, perhaps
        return random and (named or "key" in parts)
    return named or (random and "key" in parts)
