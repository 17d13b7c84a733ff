"""Odd values: numbers, words, paths; as text for command lines and as nested values for TOML and JSON."""

import copy
import random
from typing import Any

INTEGERS = ["0", "1", "2", "3", "-1", "7", "32768", "65537", "2147483648", "-2147483649", "9223372036854775808"]
INTEGERS += ["1" + "0" * 30, "-" + "9" * 400, "1.5", "1e3", "nan", "x", "", " 1", "0x10", "٣", "1_0", "--1", "None"]
FLOATS = ["0", "0.5", "1", "-1", "1e-30", "1e30", "-1e30", "1e400", "nan", "inf", "-inf", "x", "", "1,5", "½", "None"]
WORDS = [
    "",
    " ",
    "x",
    "None",
    "..",
    "/",
    "a b",
    "ü-λ-漢",
    "\U0001f4a5",
    "a\nb",
    "a\tb",
    "\udcff",
    "x" * 5000,
    "%s",
    "{}",
]
WORDS += ["--", "-", "'", '"', "$HOME", "\x1b[31mred", "\x07", "[bold]x[/bold]", "[/]", "ideal", "digits"]
PATHS = ["out", "new/deep/out", "out-ü", "with space", ".", "", "..", "../foreign", "../../sentinel/notes.txt"]
PATHS += [
    "../../sentinel/notes.txt/below",
    "../../inputs/nothing-here",
    "/dev/null",
    "/dev/null/below",
    "/proc/nothing",
]
PATHS += [
    "x" * 300,
    "/".join(["x" * 200] * 30),
    "~nobody/out",
    "a\nb",
    "\udcff",
    "None",
    "loop",
    "fifo",
    "../../inputs/run",
]
PATHS += ["../../inputs/layer", "../../inputs/fragments", "../../inputs/preset.toml", "../../inputs/trace.txt"]


def some(rng: random.Random, pool: list[Any], low: int, high: int) -> list[Any]:
    """Return `low` to `high` members of a pool, with repetition."""
    return [rng.choice(pool) for _ in range(rng.randint(low, high))]


def misspelt(rng: random.Random, word: str) -> str:
    """Return a word with one letter dropped, doubled or changed."""
    if not word:
        return "x"
    i = rng.randrange(len(word))
    return rng.choice([word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:], word[:i] + "q" + word[i + 1 :]])


def odd_value(rng: random.Random) -> Any:
    """Return a value that a file may hold where another is expected."""
    nested: Any = 0
    for _ in range(rng.choice([1, 5, 60])):
        nested = [nested] if rng.random() < 0.5 else {"x": nested}
    values = [0, 1, -1, 2**31, 2**63, 10**30, 0.5, 1e308, -1e308, float("nan"), float("inf"), True, False, None]
    return rng.choice([*values, "", "x", "ü", "\n", "x" * 10_000, "../../x", "/dev/zero", [], {}, [1, "a"], nested])


def mutated(rng: random.Random, value: Any) -> Any:
    """Return nested dictionaries and lists with one to three parts deleted, doubled, retyped, moved or renamed."""
    value = copy.deepcopy(value)
    for _ in range(rng.randint(1, 3)):
        places = _places(value)
        if not places:
            return odd_value(rng)
        group, key = rng.choice(places)
        match rng.choice(["delete", "odd", "odd", "odd", "rename", "nest", "swap", "double"]):
            case "delete":
                del group[key]
            case "odd":
                group[key] = odd_value(rng)
            case "rename" if isinstance(group, dict):
                group[misspelt(rng, key)] = group.pop(key)
            case "nest":
                group[key] = {"x": group[key]} if rng.random() < 0.5 else [group[key]]
            case "swap":
                other, place = rng.choice(places)
                if not _holds(group[key], other) and not _holds(other[place], group):
                    group[key], other[place] = other[place], group[key]
            case _:
                if isinstance(group, list):
                    group.append(group[key])
                else:
                    group[f"{key}2"] = copy.deepcopy(group[key])
    return value


def _places(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        children = [(value, key) for key in value]
    elif isinstance(value, list):
        children = [(value, index) for index in range(min(len(value), 20))]
    else:
        return []
    return children + [place for group, key in children for place in _places(group[key])]


def _holds(value: Any, part: Any) -> bool:
    if value is part:
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(_holds(p, part) for p in parts)


def flip_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return bytes that are cut, flipped, filled, repeated or replaced."""
    if not content:
        return b"\x00"
    i, j = sorted(rng.randrange(len(content) + 1) for _ in range(2))
    noise = bytes(rng.randrange(256) for _ in range(rng.randint(1, 40)))
    match rng.randrange(8):
        case 0:
            return content[:i]
        case 1:
            return content[i:]
        case 2:
            flipped = bytearray(content)
            for _ in range(rng.randint(1, 8)):
                flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            return bytes(flipped)
        case 3:
            return content[:i] + bytes(j - i) + content[j:]
        case 4:
            return content[:i] + noise + content[i:]
        case 5:
            return content[:i] + content[j:]
        case 6:
            return content + content[i:j]
        case _:
            return rng.choice([b"", noise, b"\xff\xfe" + content, content[::-1], b"\x00" * len(content)])


def emit(value: dict[str, Any] | Any, path: tuple[str, ...] = ()) -> str:
    """Write nested values as TOML, whatever they are: inline below the first level."""
    if not isinstance(value, dict):
        return f"rounds = {_inline(value)}\n"
    plain = {k: v for k, v in value.items() if not isinstance(v, dict) or path}
    text = "".join(f"{_key(k)} = {_inline(v)}\n" for k, v in plain.items())
    for name, group in value.items():
        if name not in plain:
            text += f"\n[{_key(name)}]\n{emit(group, (*path, name))}"
    return text


def _key(name: Any) -> str:
    return '"' + str(name).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _inline(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case None:
            return '""'
        case list():
            return "[" + ", ".join(map(_inline, value)) + "]"
        case dict():
            return "{" + ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items()) + "}"
        case _:
            return _key(value)
