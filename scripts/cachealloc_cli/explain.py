# SPDX-License-Identifier: MIT
"""`cachealloc explain`: why a program ran out of memory, and which setting would have let it live."""

import json

from . import __version__, answer, oom_text, paths, player, proof, record, search, statistics_file, terminal
from .args import Option, UsageError, describe, integer, parse
from .ending import ending
from .progress import Progress
from .tune import lag

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

OPTIONS = [
    Option("--memory", "value", "Memory that the device had for the program: 22G; default: as the file tells. Not with a log.", "SIZE", None,
           record.size),
    Option("--device", "value", "Explain that device; default: the first that refused a request, of a log the last.", "N", None,
           integer(0, 63)),
    Option("--lag", "value", "The device was so far behind the host; default: as a trace of CACHEALLOC_TRACE tells, else all of "
           "0, 20, 100 and 300.", "N[us]", None, lag),
    Option("-j --jobs", "value", "Replays at a time; default: one a core.", "N", None, integer(1, 1024)),
    Option("--json", "flag", "The answer as JSON."),
    Option("-h --help", "flag", "This text."),
]

HELP = """\
Examples:
  cachealloc explain oom.trace              a recording of CACHEALLOC_TRACE
  cachealloc explain oom.pickle             a PyTorch memory snapshot
  cachealloc explain train.log              a log with the out-of-memory sentence in it
  cachealloc explain --memory 22G app.7841.trace    would it run on a device of 22 GiB?

Usage: cachealloc explain [OPTIONS] FILE

{options}

FILE is anything that `cachealloc replay` reads, a log with the report of this library
or of PyTorch (old or new), or statistics (JSON). The answer says whether it was
fragmentation, a cap, another process, this process's own libraries, simply too much, or
refused although free, with the figures; and names a setting only if the program lives
with it in a replay, the refused request included, on the memory that the device had.
What a record does not hold cannot be proved, and the answer says so.

Exit status: 0 there is an answer, also "nothing failed" and "no setting helps"; 1 the
file cannot be read or is broken; 2 the command line is wrong; 130 interrupted.
"""


def help_text():
    return HELP.format(options=describe(OPTIONS))


def prepare(words):
    if len(words) != 1:
        raise UsageError("more than one file" if words else "no file: cachealloc explain [OPTIONS] FILE")
    return words[0]


def from_text(plays, path, values):
    """The answer to a log or statistics, or None: the file is neither."""
    wanted = values["device"]
    with plays.reading() as file:
        devices = statistics_file.devices(oom_text.tail(file))
        found = [] if devices else oom_text.reports(oom_text.pieces(file))
    if devices:
        _is_there(path, wanted, devices)
        return answer.of_statistics(path, devices, wanted, values["memory"])
    figures = oom_text.last(found, wanted)
    if figures is None:
        _is_there(path, wanted, sorted({each.device for each in found}))
        return None
    for option in ("memory", "lag"):
        if values[option] is not None:
            raise UsageError(f"--{option} is for recordings, and {path} is a log with a report: its figures are those of one moment")
    return answer.of_report(path, figures)


def _is_there(path, wanted, devices):
    """Devices: those that the file has something about; none: it is another kind of file."""
    if wanted is not None and devices and wanted not in devices:
        raise player.Failed(f"{path}: there is no device {wanted} in it; it has {', '.join(map(str, devices))}")


def from_record(plays, path, values, shown):
    """The answer to a recording, by replay."""
    case = proof.Case(plays, values["memory"], values["device"])
    if plays.get().device(case.device) is None:
        raise player.Failed(f"{path}: there is no device {case.device} in it")
    assumed = [values["lag"]] if values["lag"] is not None else [None] if case.first.is_told else list(search.LAGS)
    case.read(assumed)
    case.judge()
    if case.can_prove:
        case.prove(assumed, lambda now: shown.show(f"{plays.runs} replays"))
    return answer.of_case(path, case)


def explain(values, path):
    shown = Progress()
    with player.Player(path, values["jobs"], "explain") as plays:
        try:
            data = from_text(plays, path, values) or from_record(plays, path, values, shown)
        except player.Failed as problem:
            if "no trace of a known format" not in str(problem):
                raise
            with plays.reading() as file:
                says_so = oom_text.says_out_of_memory(file)
            if says_so:
                terminal.hint(f"it says that memory ran out, without figures: `{answer.record_line()}` records the program")
            raise player.Failed(f"{path}: neither a recording, nor a text with an out-of-memory report of PyTorch or cachealloc "
                                "(PyTorch's has 'Tried to allocate ...')", problem.status) from None
        except KeyboardInterrupt:
            shown.clear()
            terminal.warning(f"interrupted after {plays.runs} replays; nothing is proved")
            return INTERRUPTED
        finally:
            shown.clear()
        for text in plays.warnings:
            terminal.warning(text)
    data = {"format": "explain", "format_version": 1, "version": __version__, **data}
    rows = data.pop("figure_rows")
    terminal.out(json.dumps(data, indent=1) if values["json"] else answer.text(data, rows))
    return DONE


def run(argv):
    try:
        values, words = parse(OPTIONS, argv, anywhere=True)
        if values["help"]:
            terminal.out(help_text().rstrip())
            return DONE
        path = prepare(words)
    except UsageError as problem:
        terminal.error(f"explain: {problem}")
        return USAGE
    try:
        with ending():
            return explain(values, path)
    except UsageError as problem:
        terminal.error(f"explain: {problem}")
        return USAGE
    except player.Failed as problem:
        terminal.error(f"explain: {problem}")
        return problem.status
    except paths.NotFound as problem:
        terminal.error(f"explain: {problem}")
        return FAILED
