#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A program of ours on NVIDIA's unmodified cuda.core: memory pools, streams, events, graphs, page-locked memory, threads.

It fills memory on one stream, checks it on another that waits for the first, frees it on either, and goes on at once.
Prints one JSON line of what it saw, in which nothing depends on time. The kernels are the simulator's.
"""

import ctypes
import json
import random
import sys
import threading
from importlib import metadata

from cuda.core import (
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    EventOptions,
    GraphMemoryResource,
    LaunchConfig,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    ObjectCode,
    PinnedMemoryResource,
    launch,
)

MIB = 1 << 20
ONE = LaunchConfig(grid=1, block=32)
SIZES = [1, 100, 512 // 4, 4096, 100_000, MIB // 4, MIB, 3 * MIB]  # in words of 32 bits


class Program:
    def __init__(self, seed):
        self.seed, self.seen = seed, {"core": metadata.version("cuda-core"), "checks": 0}
        self.device = Device(0)
        self.device.set_current()
        self.code = ObjectCode.from_cubin(b"simcuda\0")
        self.kernels = {name: self.code.get_kernel(f"sim_{name}") for name in ("fill", "check", "copy")}
        self.pinned = LegacyPinnedMemoryResource()
        self.errors = self.pinned.allocate(8)
        ctypes.memset(int(self.errors.handle), 0, 8)
        self.lock = threading.Lock()

    def run(self, name, stream, *arguments):
        launch(stream, ONE, self.kernels[name],
               *(a if hasattr(a, "handle") else ctypes.c_uint64(a) for a in arguments))

    def fill(self, stream, memory, words, value):
        self.run("fill", stream, memory, words, value, 20)

    def check(self, stream, memory, words, value):
        self.run("check", stream, memory, words, value, int(self.errors.handle), 20)
        with self.lock:
            self.seen["checks"] += 1

    # ---------------------------------------------------------------- one thread after another's example
    def mixed(self, resource, shared, seed, steps):
        """Allocated on one stream, used on that and on others, freed on the last; some of it lives on for a while."""
        self.device.set_current()
        chance = random.Random(seed)
        streams, live = [self.device.create_stream(), self.device.create_stream(), shared], []
        for step in range(steps):
            here, there = chance.sample(streams, 2)
            words, value = chance.choice(SIZES), seed * 1000 + step
            memory = resource.allocate(4 * words, stream=here)
            self.fill(here, memory, words, value)
            self.check(here, memory, words, value)
            there.wait(here if chance.random() < 0.5 else here.record())
            self.check(there, memory, words, value)
            if chance.random() < 0.5:
                live.append((memory, there, words, value))
            else:
                memory.close(there)
            while len(live) > chance.randrange(8):
                memory, last, words, value = live.pop(chance.randrange(len(live)))
                here.wait(last)
                self.check(here, memory, words, value)
                memory.close(here)
            if chance.random() < 0.05:
                here.sync()
        for memory, last, words, value in live:
            self.check(last, memory, words, value)
            memory.close(last)
        for stream in streams:
            stream.sync()

    def threads(self, resource, steps):
        shared = self.device.create_stream()
        workers = [threading.Thread(target=self.guarded, args=(self.mixed, resource, shared, self.seed + n, steps))
                   for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    def guarded(self, work, *arguments):
        try:
            work(*arguments)
        except BaseException as problem:
            with self.lock:
                self.seen.setdefault("problems", []).append(repr(problem))

    # ---------------------------------------------------------------- what the pools say of themselves
    def figures(self, resource):
        seen, stream = [], self.device.create_stream()
        blocks = [resource.allocate(size, stream=stream) for size in (1, 512, 513, MIB, 5 * MIB + 1)]
        attributes = resource.attributes
        seen.append((attributes.used_mem_current, attributes.used_mem_high))
        for block in blocks[::2]:
            block.close(stream)
        seen.append((attributes.used_mem_current, attributes.used_mem_high))
        for block in blocks[1::2]:
            block.close(stream)
        stream.sync()
        seen.append((attributes.used_mem_current, attributes.used_mem_high, attributes.release_threshold))
        seen.append((attributes.reuse_follow_event_dependencies, attributes.reuse_allow_opportunistic,
                     attributes.reuse_allow_internal_dependencies))
        return seen

    def pools(self):
        small = DeviceMemoryResource(self.device, DeviceMemoryResourceOptions(max_size=64 * MIB))
        self.seen["own pool"] = self.figures(small)
        self.seen["default pool"] = self.figures(self.device.memory_resource)
        stream = self.device.create_stream()
        try:
            small.allocate(80 * MIB, stream=stream)
            self.seen["beyond max_size"] = "given"
        except Exception as problem:
            self.seen["beyond max_size"] = str(problem).split(":")[0]
        self.mixed(small, self.device.create_stream(), self.seed + 10, 30)
        self.threads(self.device.memory_resource, 25)
        for resource in (PinnedMemoryResource(), ManagedMemoryResource()):
            memory = resource.allocate(4096, stream=stream)
            stream.sync()
            self.fill(stream, memory, 1024, 7)
            stream.sync()
            self.seen[type(resource).__name__] = ctypes.string_at(int(memory.handle), 8).hex()
            memory.close(stream)

    # ---------------------------------------------------------------- graphs
    def graphs(self):
        stream, resource = self.device.create_stream(), self.device.memory_resource
        outside = resource.allocate(4096, stream=stream)
        inside = GraphMemoryResource(self.device)
        builder = self.device.create_graph_builder().begin_building()
        scratch = inside.allocate(MIB, stream=builder)
        self.fill(builder, scratch, MIB // 4, 5)
        self.check(builder, scratch, MIB // 4, 5)
        self.run("copy", builder, outside, scratch, 1024, 0)
        scratch.close(builder)
        graph = builder.end_building().complete()
        for _ in range(3):
            self.fill(stream, outside, 1024, 6)
            graph.launch(stream)
            self.check(stream, outside, 1024, 5)
            between = resource.allocate(MIB, stream=stream)  # must not be the graph's
            self.fill(stream, between, MIB // 4, 8)
            graph.launch(stream)
            self.check(stream, between, MIB // 4, 8)
            between.close(stream)
        outside.close(stream)
        stream.sync()

    # ---------------------------------------------------------------- staging
    def staging(self):
        """Page-locked memory is written, copied from, and given back at once."""
        streams = [self.device.create_stream() for _ in range(2)]
        blocks = [self.device.allocate(MIB, stream=stream) for stream in streams]
        event = self.device.create_event(EventOptions(timing_enabled=True))
        for turn in range(40):
            stream, block = streams[turn % 2], blocks[turn % 2]
            host = self.pinned.allocate(MIB - 4096 * (turn % 3))
            ctypes.memset(int(host.handle), turn, host.size)
            host.copy_to(block, stream=stream) if host.size == MIB else self.run(
                "copy", stream, block, int(host.handle), host.size // 4, 20)
            host.close()
            self.check(stream, block, host_words(turn), turn * 0x01010101)
            stream.record(event)
            if turn % 8 == 7:
                event.sync()
        event.sync()
        for stream, block in zip(streams, blocks):
            block.close(stream)
            stream.sync()

    def finish(self):
        """Every stream was waited for. (Device.sync is of the runtime that the package carries, which refuses the simulator.)"""
        self.seen["errors"] = ctypes.c_uint64.from_address(int(self.errors.handle)).value
        self.seen["left in the pool"] = self.device.memory_resource.attributes.used_mem_current
        self.errors.close()
        print(json.dumps(self.seen))


def host_words(turn):
    return (MIB - 4096 * (turn % 3)) // 4


program = Program(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
program.pools()
program.graphs()
program.staging()
program.finish()
