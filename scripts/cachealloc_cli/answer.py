# SPDX-License-Identifier: MIT
"""The answer of `cachealloc explain`: a verdict, the figures behind it, the proof, the command to use."""

import shlex
import shutil

from . import candidates, causes, invocation, search, terminal
from .causes import Figures
from .tune import advice_text, fine_size

WHICH_OF_THESE = "none: the figures do not tell which of these it was"
PYTORCH = "PYTORCH_NO_CUDA_MEMORY_CACHING=1"
POOL = "CACHEALLOC_CONF=async:pool"  # PyTorch on cudaMallocAsync: it does not look at the variable above
OTHER_KINDS = ("stream-ordered memory (cudaMallocAsync) is recorded with CACHEALLOC_CONF=async:pool; managed and virtual memory and "
               "arrays never are")
NAME_ONLY = ("of the command the recording has only the program's name: its folder, its arguments and its other variables have to be "
             "those that it was recorded with")
IF_PYTORCH = f"{PYTORCH} is for PyTorch, which else keeps its own cache; other programs do not look at it"
EXPANDABLE = "while PyTorch's own cache stays, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True is the first setting to try"


def size(count):
    return "an unknown number of bytes" if count is None else fine_size(count)


def record_line(first=""):
    """The command that records the program."""
    return f"{first}CACHEALLOC_TRACE=oom.trace {invocation.words()} run -- PROGRAM ARGUMENTS"


def _record_lines(first=""):
    """Recording, and what comes next."""
    return [record_line(first), f"{invocation.words()} explain oom.trace"]


# ------------------------------------------------------------------------------------------------ verdicts ---


def _holders(cause, figures):
    """Of memory that is not the allocator's."""
    if cause == causes.OUTSIDE:
        return (f"outside PyTorch: {size(figures.outside)} of the device were held by this process outside PyTorch: its context, "
                "loaded code, NCCL, cuBLAS, other libraries")
    return f"others: {size(figures.others)} of the device were held by {_whose(figures)}"


def _whose(figures):
    return "other processes" if figures.process is not None else "other processes, libraries and contexts"


def _room(figures):
    """Memory that the program can have had."""
    if figures.capacity is not None:
        return size(figures.capacity)
    holders = ((figures.others, f"that {_whose(figures)} held"), (figures.outside, "of this process outside PyTorch"))
    held = [(count, f"{size(count)} {phrase}") for count, phrase in holders if count]
    if not held:
        return size(figures.device_memory)
    return (f"{size(figures.device_memory - sum(count for count, _ in held))}, the device's {size(figures.device_memory)} less "
            + " and ".join(phrase for _, phrase in held))


def _verdict(cause, figures):
    """The first half of the sentence: what happened."""
    if cause == causes.TOO_MUCH:
        whole = figures.device_memory if figures.device_memory is not None else figures.capacity
        return (f"simply too much: {size(figures.live)} were live and {size(figures.request)} asked for, more than the "
                f"device's {size(whole)}; no setting helps")
    if cause == causes.CAP:
        return f"a cap: a limit of {size(figures.allowed)} refused {size(figures.request)}, not the device"
    if cause == causes.REFUSED:
        if figures.free is None:
            return (f"refused although most of the device was not the program's: {size(figures.request)} was refused, and of "
                    f"{size(figures.device_memory)} {size(figures.others)} were others', or free and refused all the same (host "
                    "memory, a limit of the container or of WSL, MIG)")
        return (f"refused although free: the device reported {size(figures.free)} free, yet {size(figures.request)} was refused: "
                "another process took the memory at that moment, or the system refused (host memory, a limit of the container "
                "or of WSL, MIG)")
    if cause in (causes.OTHERS, causes.OUTSIDE):
        return (f"{_holders(cause, figures)}; without them {size(figures.live)} live and {size(figures.request)} asked for would "
                f"fit into {size(figures.device_memory)}")
    if cause == causes.FRAGMENTATION:
        return (f"fragmentation: {size(figures.live)} live and {size(figures.request)} asked for would fit into {_room(figures)}, "
                f"but what was free lay in pieces, {size(figures.pieces)} of it within segments")
    if cause == causes.FRAMEWORK:
        return "fragmentation in PyTorch's own cache: on the same memory cachealloc serves the program as it is"
    return "the figures do not tell the cause"


def _figure_rows(figures):
    pieces = figures.pieces
    largest = f", the largest {size(figures.largest)}" if figures.largest is not None else ""
    held = "held by others or free" if figures.may_have_been_free else "held by others"
    rows = [("requested", figures.request, ""), ("live then", figures.live, ""),
            ("reserved", figures.reserved, "" if pieces is None else f", of it free in pieces {size(pieces)}{largest}"),
            ("the device's memory", figures.device_memory, ""),
            ("for this program", figures.capacity if figures.capacity != figures.device_memory else None, ", at most"),
            ("free in the device", figures.free, ""), (held, figures.others or None, ""),
            ("this process, outside PyTorch", figures.outside or None, ""),
            ("limit", figures.allowed, "")]
    return [[f"  {label}", f"{size(value)}{more}"] for label, value, more in rows if value is not None]


def _lags(lags):
    """"with the device idle, 20, 100 and 300 us behind"."""
    if len(lags) == 1:
        return search.lag_text(lags[0])
    words = ["idle" if lag == 0 else str(lag) for lag in lags]
    return f"with the device {', '.join(words[:-1])} and {words[-1]} us behind"


def _proof_lines(proofs):
    """A line for each setting, memory and end."""
    same = {}
    for each in proofs:
        same.setdefault((each["conf"], each["memory_bytes"], each["lives"]), []).append(each["lag_us"])
    return [f"  {conf or 'as it is'}: {'lives' if lives else 'runs out'} with {size(memory)}, {_lags(lags)}"
            for (conf, memory, lives), lags in same.items()]


def text(data, figure_rows):
    """For people."""
    lines = [terminal.paint(data["verdict"], "bold")]
    if figure_rows:
        lines.append(terminal.table(figure_rows, right=()))
    lines += [f"proof: {data['proof_text']}"]
    lines += _proof_lines(data["proofs"])
    lines += data["notes"]
    lines += ["to do:", *(f"  {line}" for line in data["commands"])] if data["commands"] else []
    return "\n".join(lines)


def _data(path, kind, cause, figures, verdict, **more):
    known = {"file": path, "source": kind, "device": figures.device, "cause": cause, "verdict": verdict,
             "figures": figures.as_json(), "proved": False, "proof_text": "", "proofs": [], "conf": None,
             "min_capacity_bytes": None, "notes": [], "commands": [], "figure_rows": _figure_rows(figures)}
    return {**known, **more}


# -------------------------------------------------------------------------------------------------- a log ---

_SETTINGS = {
    causes.TOO_MUCH: "use less at a time: a smaller batch, recomputation; or a larger device",
    causes.REFUSED: "watch `nvidia-smi` (other processes, MIG) and the host's free memory (`free -h`, the container's limit) "
                    "while the program runs; PyTorch's issue 40002 was a host whose memory was full",
    causes.OUTSIDE: "this process's own libraries hold it: load less code (CUDA_MODULE_LOADING=LAZY), use fewer communicators and "
                    "smaller workspaces; or use less",
    causes.OTHERS: "`nvidia-smi` names the processes on the device; end them, or use less",
}


def _raise(is_ours):
    """To do about a cap."""
    if is_ours:
        return "raise CACHEALLOC_LIMIT or per_process_memory_fraction, or use less"
    return "raise the fraction that the program gave to torch.cuda.set_per_process_memory_fraction, or use less"


def _other_devices(what, indices):
    return f"other devices {what}, too: --device {', '.join(map(str, indices))}"


def of_report(path, figures):
    """From a report in a log."""
    cause = causes.cause(figures)
    notes, commands = [], []
    if figures.reports > 1:
        notes.append(f"{figures.reports} reports are in the file; this is the last")
    if figures.other_devices:
        notes.append(_other_devices("have reports", figures.other_devices))
    if figures.private_pools:
        notes.append(f"of what was live, {size(figures.private_pools)} were in private pools, those of CUDA graphs: what is free there "
                     "serves nothing else, so fewer graphs, or none (vLLM: --enforce-eager), leave more")
    if cause in _SETTINGS:
        notes.append(_SETTINGS[cause])
    elif cause == causes.CAP:
        notes.append(_raise(figures.is_ours))
    elif figures.platform != "CUDA":
        notes.append(f"cachealloc serves CUDA programs only: it cannot record this one, whose memory is {figures.platform}'s")
    else:
        if cause == causes.FRAGMENTATION and not figures.is_ours:
            notes.append(EXPANDABLE)
        first = "" if figures.is_ours else f"{POOL} " if figures.is_pool else f"{PYTORCH} "
        commands = _record_lines(first)
    why = (WHICH_OF_THESE if cause == causes.REFUSED else
           "none is needed: the figures are enough" if cause in (causes.TOO_MUCH, causes.CAP, causes.OTHERS, causes.OUTSIDE) else
           "none: a report has the figures of one moment; a recording of the program is needed to try settings")
    return _data(path, "out-of-memory report of cachealloc" if figures.is_ours else "out-of-memory report of PyTorch", cause,
                 figures, _verdict(cause, figures), proof_text=why, notes=notes, commands=commands)


# --------------------------------------------------------------------------------------------- statistics ---


def of_statistics(path, devices, wanted, memory):
    """From statistics, which have neither the refused request nor the device's memory."""
    index = wanted if wanted is not None else max(devices, key=lambda each: devices[each].get("ooms") or 0)
    device = devices.get(index, {})
    figures = Figures(live=device.get("requested_bytes", {}).get("peak"),
                      reserved=device.get("reserved_bytes", {}).get("peak"),
                      device_memory=memory)  # the largest free block is that at exit
    figures.device, figures.is_ours = index, True
    rows = [[f"  {label}", size(value)] for label, value in (
        ("live, at its peak", figures.live), ("reserved, at its peak", figures.reserved), ("the device's memory", memory))
        if value is not None]
    if not device.get("ooms"):
        return _data(path, "statistics", causes.NOTHING, figures, f"nothing failed: no allocation on device {index} was "
                     "refused", figure_rows=rows, proof_text="none is needed: `ooms` is 0",
                     notes=["a framework that refuses by its own account, or another kind of call, is not counted there"])
    more = f", {figures.pieces / figures.live * 100:.1f} % more than was used" if figures.pieces and figures.live else ""
    verdict = (f"not to be told from statistics alone: {device['ooms']} allocations were refused; at their peaks "
               f"{size(figures.live)} were live and {size(figures.reserved)} reserved{more}")
    cause = causes.UNKNOWN
    if memory and figures.live is not None and figures.live > memory - causes.SLACK:
        cause, verdict = causes.TOO_MUCH, f"simply too much: {size(figures.live)} were live on a device of {size(memory)}"
    return _data(path, "statistics", cause, figures, verdict, figure_rows=rows,
                 proof_text="none: statistics have neither the refused request nor the memory of the device",
                 commands=_record_lines())


# ---------------------------------------------------------------------------------------------- a recording ---


def _run_line(case, conf):
    first = f"{PYTORCH} " if case.is_framework or case.may_be_pytorch else ""
    keys = f"--conf {shlex.quote(conf)} " if conf else ""
    taken = case.variables.get("CACHEALLOC_TAKEOVER")
    keys += f"--take-over {shlex.quote(taken)} " if taken else ""
    program = "python train.py" if case.is_framework else "PROGRAM"
    if case.program:
        program = shlex.quote(case.program if shutil.which(case.program) else f"FOLDER/{case.program}")
    return f"{first}{invocation.words()} run {keys}-- {program} ARGUMENTS"


def _run_notes(case):
    """About the line above."""
    return ([NAME_ONLY] if case.program else []) + ([IF_PYTORCH] if case.may_be_pytorch else [])


def _missing(case):
    """Why there is no proof."""
    if case.cause == causes.REFUSED:
        return WHICH_OF_THESE
    if case.high is None:
        if case.cause == causes.NOTHING and case.figures.device_memory is not None:
            return "none is needed: no request was refused"
        return "none: the record does not say how much memory the device had; --memory SIZE does"
    if case.cause == causes.FRAGMENTATION:
        return ("none: in the replay the program as it was does not run out with what it had; several streams, another "
                "process or calls that are not recorded may be the reason")
    return "none: the record does not hold enough for one"


def _has_nothing(case):
    return not (case.first.data["allocations"] or case.first.data["live_at_start"])


def _nothing(case):
    if _has_nothing(case):
        return "nothing was allocated in this record: what ran out, if anything did, was memory of another kind"
    if case.high is None:
        known = case.figures.device_memory
        return "nothing failed: no request of this record was refused" + (
            ", and the memory of the device is not in it: --memory SIZE tries one" if known is None else
            f"; the device had {size(known)}: --memory SIZE tries another size")
    return f"nothing fails: the program lives with {size(case.high)} as it is"


def _fragmentation(case, figures):
    """Verdict and the rest for fragmentation."""
    verdict = _verdict(causes.FRAGMENTATION, figures)
    if case.advice:
        conf = candidates.text(candidates.changed(case.full, case.advice.change))
        least = case.advice.least(case.search.assumed)
        return {"verdict": f"{verdict}; with {advice_text(case.advice)} it would have lived",
                "notes": [f"least memory up to there: {size(case.least)} as it is, {size(least)} with the setting",
                          *_cost(case), *_run_notes(case)],
                "conf": conf, "commands": [_run_line(case, conf)]}
    if not case.is_reproduced:
        return {"verdict": verdict}
    return {"verdict": f"{verdict}; no setting helps: of {case.search.tried} tried none lives with {size(case.low)}",
            "notes": [f"least memory up to there: {size(case.least)} as it is"]}


def _cost(case):
    """The driver calls of the advice with plenty of memory."""
    lag = case.search.worst
    before, after = case.search.before.outcomes[lag], case.advice.outcomes[lag]
    return [f"driver calls with plenty of memory: {terminal.count_text(before.calls)} -> {terminal.count_text(after.calls)}, "
            f"waits of the host {terminal.count_text(before.waits)} -> {terminal.count_text(after.waits)}"]


def of_case(path, case):
    """From a recording."""
    figures, cause = case.figures, case.cause
    more = {"verdict": _verdict(cause, figures)}
    if cause == causes.NOTHING:
        more = {"verdict": _nothing(case)}
        if _has_nothing(case) and not case.is_framework:
            more["notes"] = [OTHER_KINDS]
            more["commands"] = _record_lines(f"{POOL} ")
    elif cause == causes.FRAGMENTATION:
        more = _fragmentation(case, figures)
    elif cause == causes.FRAMEWORK:
        more["commands"] = [_run_line(case, "")]
    elif cause in _SETTINGS:
        more["notes"] = [_SETTINGS[cause]]
    elif cause == causes.CAP:
        more["notes"] = [_raise(not case.is_framework)]
    if cause == causes.TOO_MUCH and not case.refusal:
        more["verdict"] = (f"simply too much: the program holds {size(case.peak_live)} at once, more than {size(case.high)}; no "
                           "setting helps")
    notes = more.pop("notes", [])
    if cause == causes.REFUSED and case.is_framework:
        notes.append("a snapshot does not tell whether the program set a limit (torch.cuda.set_per_process_memory_fraction); the "
                     "line in its log has `allowed` if so")
    if cause in (causes.OTHERS, causes.FRAGMENTATION, causes.REFUSED) and figures.may_have_been_free:
        notes.append(f"{size(figures.others)} were not the program's, and the record does not tell whether they were free: the "
                     f"report in the program's log does ({invocation.words()} explain LOG)")
    if case.refusal and len(case.refusals) > 1:
        notes.append(_other_devices("refused requests", [index for index in case.refusals if index != case.device]))
    if case.is_framework and cause in (causes.FRAGMENTATION, causes.FRAMEWORK):
        notes.append(EXPANDABLE)
    at_start = case.first.data["live_at_start"]
    if at_start and cause in (causes.FRAGMENTATION, causes.FRAMEWORK):
        notes.append(f"{at_start} blocks were there when the recording began: the replay lays them out anew")
    if case.went_on:
        notes.append("the program went on allocating after the refused request; that is not in the proof")
    proofs = [{"conf": conf, "lag_us": lag, "memory_bytes": memory, "lives": lives}
              for conf, lag, memory, lives in case.proofs]
    proved = case.is_proved
    return _data(path, case.first.data["input_format"], cause, figures, more.pop("verdict"), proved=proved,
                 proof_text=("by replay" + (", the refused request included" if case.refusal else "")) if proofs and (
                     proved or cause == causes.NOTHING) else _missing(case),
                 proofs=proofs, min_capacity_bytes=case.least, notes=notes, **more)
