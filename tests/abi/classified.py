# SPDX-License-Identifier: MIT
"""Which driver entry points have to do with streams or device memory, and what we make of each.

An entry point is of interest if a CUstream, CUgraphExec or CUdeviceptr is among its parameters, also in a structure that
one of them points to, or if its name says that it works in a stream. Each is exactly one of

submits   a row of shim/bind/submit.def
waits     WAITS: it waits, asks or orders; hooked by hooks.def
neither   NEITHER: and why not

The facts (which entry points, for which of their types) are kept in facts_streams.txt, so that the classification means
something without a toolkit; where there are toolkits, the facts are compared with their headers.

    classified.py INCLUDE... > facts_streams.txt      writes the facts of the toolkits with these folders of headers
"""

import re
import sys
from pathlib import Path

from abi_source import COMMENT, ROOT
from toolkit import version_of

FACTS = Path(__file__).resolve().parent / "facts_streams.txt"
NAMES = ROOT / "shim" / "bind" / "cuda_names.def"

ROOTS = ("CUstream", "CUgraphExec", "CUdeviceptr")
# work, waits or order in a stream that no parameter names: it is the NULL stream, or all of a context
BY_NAME = re.compile(r"cu(Memcpy|Memset|Launch|Stream|Event|GLMap|GLUnmap|EGLStream|Ctx(Synchronize|RecordEvent|WaitEvent)|"
                     r"GreenCtx(RecordEvent|WaitEvent)|GraphicsMap|GraphicsUnmap|FlushGPUDirect)")

WINDOWS = {"cuWGLGetDevice"}  # its driver's alone

WAITS = {
    r"cuStreamSynchronize|cuStreamQuery": "the stream has finished",
    r"cuStreamWaitEvent": "orders the stream behind an event",
    r"cuEventRecord|cuEventRecordWithFlags": "what the event stands for",
    r"cuEventSynchronize|cuEventQuery": "the event has completed",
    r"cuEventDestroy|cuEventDestroy_v2": "the event is gone",
    r"cuCtxSynchronize|cuCtxSynchronize_v2": "every stream of the context has finished",
    r"cuCtxRecordEvent|cuGreenCtxRecordEvent": "the event stands for more than a stream: it teaches nothing",
    r"cuCtxWaitEvent": "orders a whole context: finished memory only from then on",
}

NEITHER = {
    # the ABI of CUDA 2
    "32-bit addresses: ours lie above": r"@32",
    "CUDA 2's copies of arrays: none of ours": r"cuMemcpy(AtoA|AtoH|HtoA|AtoHAsync|HtoAAsync)",
    # hooked, for another reason
    "memory itself: hooked": r"cuMemAlloc_v2|cuMemAllocPitch_v2|cuMemFree_v2|cuMemAllocManaged",
    "a view of our block: hooked": r"cuMemGetAddressRange_v2|cuPointer(Get|Set)Attributes?|cuIpcGetMemHandle|"
                                   r"cuMemGetHandleForAddressRange",
    "capture: hooked": r"cuStream(BeginCapture|BeginCapture_v2|BeginCaptureToGraph|EndCapture|"
                       r"BeginRecaptureToGraph|BeginCaptureToCig|EndCaptureToCig)",
    "life of a stream: hooked": r"cuStreamCreate|cuStreamCreateWithPriority|cuGreenCtxStreamCreate|cuStreamDestroy|"
                                r"cuStreamDestroy_v2",
    "of a green context: where there is one, finished memory only": r"cuGreenCtxWaitEvent",
    # nothing is submitted
    "asks the driver about a stream": r"cuStreamGet(Attribute|CaptureInfo|CaptureInfo_v[23]|Ctx|Ctx_v2|Device|DevResource|Flags|GreenCtx|Id|"
                                      r"Priority)|cuStreamIsCapturing",
    "sets what later launches are like": r"cuStreamSetAttribute|cuStreamCopyAttributes",
    "within a capture, which submits nothing": r"cuStreamUpdateCaptureDependencies|cuStreamUpdateCaptureDependencies_v2",
    "life of an event; it stands for nothing yet": r"cuEventCreate",
    "an event of others: it teaches nothing": r"cuEventCreateFromEGLSync",
    "asks about events that have completed": r"cuEventElapsedTime|cuEventElapsedTime_v2",
    "nodes of a graph: the launch submits": r"cuGraph(Add|Exec|Kernel|Mem|Batch|External|Node)\w*Node\w*|cuGraphAddNode|"
                                            r"cuGraphExecUpdate|cuGraphExecUpdate_v2|cuGraphNodeSetParams|cuGraphNodeSetParams_v2|cuGraphNodeGetParams|"
                                            r"cuGraphExecNodeSetParams|cuGraphNode[GS]etEnabled",
    "a graph is made (an upload touches none of ours) or ends; a running one goes on": r"cuGraphInstantiate\w*|cuGraphExecDestroy|cuGraphExecGetFlags|cuGraphExecGetId",
    "asks about a launch": r"cuOccupancyMax\w+",
    "virtual memory: not allocated by us": r"cuMemAddress(Free|Reserve)|cuMemMap|cuMemUnmap|cuMem(Get|Set)Access",
    "memory of other kinds: not allocated by us": r"cuMemHostGetDevicePointer_v2|cuModuleGetGlobal_v2|cuLibraryGet(Global|"
                                                  r"Managed)|cuExternalMemoryGetMappedBuffer|cuMemPool(Export|Import)Pointer|"
                                                  r"cuIpc(Open|Close)MemHandle|cuIpcOpenMemHandle_v2|"
                                                  r"cuGraphicsResourceGetMapped(Pointer_v2|EglFrame)|cuMulticastBindAddr|cuMulticastBindAddr_v2",
    "managed memory: advice, no work": r"cuMemAdvise|cuMemAdvise_v2|cuMemRangeGetAttributes?|cuMemGetLocationInfo",
    "textures and surfaces; the launch submits": r"cuTexRef\w+|cuTexObject\w+|cuSurfObject\w+",
    "EGL: a connection, not a CUDA stream": r"cuEGLStream(Consumer|Producer)(Connect|ConnectWithFlags|Disconnect)",
    "a checkpoint stops the process; nothing is submitted": r"cuCheckpointProcess(Checkpoint|Restore)",
    "flushes writes of other devices; waits for no stream": r"cuFlushGPUDirectRDMAWrites",
}


def plain(text):
    return re.sub(r"\b(CU\w+?)_v[12]\b", r"\1", text)


def structures(text):
    """{name: body} of the structures and unions of a header; names without their ABI version."""
    found = {}
    for tag, body, name in re.findall(r"typedef\s+(?:struct|union)\s+(\w*)\s*\{((?:(?!\btypedef\b).)*?)^\}\s*(\w+);",
                                      text, re.S | re.M):
        found[plain(name)] = body
        if tag:
            found[tag] = body
    for name, alias in re.findall(r"^typedef\s+(?:struct\s+)?(\w+)\s+(\w+);", text, re.M):
        if name in found or plain(name) in found:
            found.setdefault(plain(alias), found.get(name) or found[plain(name)])
    return found


def carriers(text):
    """{structure: the one of ROOTS, or the structure, that makes it of interest}"""
    bodies = {name: set(re.findall(r"\w+", plain(body))) for name, body in structures(text).items()}
    found = {}
    while True:
        new = {}
        for name, words in bodies.items():
            if name not in found:
                inside = sorted(words & {*ROOTS, *found} - {name})
                if inside:
                    new[name] = inside[0]
        if not new:
            return found
        found.update(new)


def table():
    """{symbol: (base, version, per_thread)} of cuda_names.def"""
    rows = re.findall(r"^CA_NAME\((\w+), (\w+), (\d+), (\w+)\)", NAMES.read_text(), re.M)
    return {symbol: (base, int(version), flavour == "PTSZ") for symbol, base, version, flavour in rows}


def prototypes(include):
    """{(base, version, per_thread): parameters} of the *Typedefs.h headers"""
    found = {}
    for part in ("", "GL", "EGL", "VDPAU"):
        text = COMMENT.sub("", (include / f"cuda{part}Typedefs.h").read_text(errors="replace"))
        for base, version, suffix, parameters in re.findall(
                r"typedef\s+CUresult\s*\(CUDAAPI\s*\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds|)\)\s*\((.*?)\);", text, re.S):
            found[base, int(version), bool(suffix)] = parameters
    return found


def interest(symbol, parameters, carrying):
    """Why the entry point is of interest; None if it is not."""
    if re.search(r"\bCUdeviceptr_v1\b|\bCUDA_MEMCPY[23]D_v1\b", parameters):
        return "@32"
    words = set(re.findall(r"\w+", plain(parameters)))
    for word in ROOTS:
        if word in words:
            return word
    inside = sorted(words & set(carrying))
    if inside:
        return inside[0]
    return "name" if BY_NAME.match(symbol) else None


def facts_of(include):
    """({symbol: why of interest}, names that cuda_names.def does not know, as "base version") of a toolkit."""
    carrying = carriers("".join(COMMENT.sub("", (include / name).read_text(errors="replace"))
                                for name in ("cuda.h", "cudaEGL.h")))
    known = {key: symbol for symbol, key in table().items()}
    facts, unknown = {}, []
    for key, parameters in prototypes(include).items():
        if key not in known and key[0] not in WINDOWS:
            unknown.append(f"{key[0]} {key[1]}")
        if key not in known:
            continue
        why = interest(known[key], parameters, carrying)
        if why:
            facts[known[key]] = why
    return facts, sorted(set(unknown))


def facts():
    """{symbol: (why of interest, the toolkit's version since which it is so)}"""
    lines = [line.split() for line in FACTS.read_text().splitlines() if line and not line.startswith("#")]
    return {line[0]: (line[1], int(line[2]) if len(line) > 2 else 0) for line in lines}


def matches(pattern, symbol, why):
    if pattern.startswith("@"):
        return why == pattern
    return why != "@32" and re.fullmatch(f"(?:{pattern})(_ptsz|_ptds)?", symbol) is not None


def classes(symbol, why, submitting):
    """Everything that is claimed of an entry point; there should be one."""
    found = ["submits"] if symbol in submitting else []
    found += [f"waits: {reason}" for pattern, reason in WAITS.items() if matches(pattern, symbol, why)]
    found += [f"neither: {reason}" for reason, pattern in NEITHER.items() if matches(pattern, symbol, why)]
    return found


def main():
    includes = sorted(map(Path, sys.argv[1:]), key=version_of)
    if not includes:
        sys.exit(__doc__)
    print("# Entry points that have to do with streams or device memory, the type or structure that says so, and since which\n"
          "# toolkit if older ones have it without that. @32: addresses of 32 bits. Written by classified.py.")
    merged, seen = {}, set()
    for include in includes:
        found = facts_of(include)[0]
        for symbol in set(found) - set(merged):
            merged[symbol] = found[symbol] + (f" {version_of(include)}" if symbol in seen else "")
        keys = prototypes(include)
        seen |= {symbol for symbol, key in table().items() if key in keys}
    for symbol in sorted(merged):
        print(symbol, merged[symbol])


if __name__ == "__main__":
    main()
