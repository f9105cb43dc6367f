# SPDX-License-Identifier: MIT
"""W6: images by diffusion: convolutions with workspaces.

Images alternate between latents of 64 x 64 and 96 x 96, batch 2. An image is 20 steps of a UNet with 4 levels of 320,
640, 1280 and 1280 channels, 2 blocks each way, 2 bytes a number: the blocks on the way down keep their outputs for those
on the way up. Each convolution asks for one workspace, 0.5 to 4 GiB, always the same for the same layer and shape, and
frees it after the operation. At its end the image is decoded: 4 levels of 512, 512, 256 and 128 channels at 1, 2, 4 and 8
times the size, 4 bytes a number, three tensors a level at once, and a workspace. A phase ends with each image.
"""

from .trace import GIB, MIB

IMAGES = 40  # at scale 1
STEPS = 20
SIDES = (64, 96)
BATCH = 2
CHANNELS = (320, 640, 1280, 1280)
BLOCKS = 2
DECODER = ((512, 1), (512, 2), (256, 4), (128, 8))
WORKSPACE = (GIB // 2, 4 * GIB)


class Images:
    def __init__(self, trace, chance):
        self.trace, self.chance = trace, chance
        self.spaces = {}  # layer and shape -> bytes
        for channels in CHANNELS:
            for _ in range(2 * BLOCKS):
                trace.start(2 * 9 * channels * channels)
                trace.start(2 * channels * channels)

    def workspace(self, *layer):
        if layer not in self.spaces:
            self.spaces[layer] = self.chance.integer(*WORKSPACE) // MIB * MIB
        return self.trace.take(self.spaces[layer])

    def block(self, size, *layer):
        """Norm, convolution, norm, convolution; its output."""
        trace = self.trace
        norm = trace.take(size)
        for half in range(2):
            space = self.workspace(half, *layer)
            out = trace.take(size)
            trace.drop(space)
            trace.drop(norm)
            norm = out
        return norm

    def unet(self, side):
        trace, skips = self.trace, []
        sizes = [2 * BATCH * channels * (side >> level) ** 2 for level, channels in enumerate(CHANNELS)]
        for level, size in enumerate(sizes):
            for n in range(BLOCKS):
                skips.append(self.block(size, "down", side, level, n))
        flowing = self.block(sizes[-1], "middle", side)
        for level, size in reversed(list(enumerate(sizes))):
            for n in range(BLOCKS):
                both = trace.take(2 * size)
                trace.drop(flowing)
                trace.drop(skips.pop())
                flowing = self.block(size, "up", side, level, n)
                trace.drop(both)
        trace.drop(flowing)

    def decode(self, side):
        trace, before = self.trace, None
        for level, (channels, factor) in enumerate(DECODER):
            size = 4 * channels * (side * factor) ** 2
            tensors = [trace.take(size) for _ in range(3)]
            trace.drop(self.workspace("decode", side, level))
            if before:
                trace.drop(before)
            before = tensors.pop()
            trace.drop_all(tensors)
        trace.drop(before)


def w6(trace, chance, scale, synthetic):
    """diffusion: alternating shapes, workspaces of 0.5 to 4 GiB, a decoder's spike"""
    made = Images(trace, chance)
    for image in range(max(2, round(IMAGES * scale))):
        latents = trace.take(2 * BATCH * 4 * SIDES[image % 2] ** 2)
        for _ in range(STEPS):
            made.unet(SIDES[image % 2])
        made.decode(SIDES[image % 2])
        trace.drop(latents)
        trace.phase()
