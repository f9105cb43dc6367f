# SPDX-License-Identifier: MIT
"""Arrays of many sizes go to the device and come back, by tinygrad's own allocator over the driver's interface; LRU=0 takes its cache
away. A staging buffer in page-locked memory is allocated for each copy, and freed while the copy may still run. JSON on stdout.
Usage: drive_tinygrad.py SEED
"""

import hashlib
import json
import random
import sys

from tinygrad import Tensor, dtypes

SIZES = [100, 4_000, 20_000, 280_000, 1_200_000]
STEPS, LIVE = 150, 20


def main(seed):
    random.seed(seed)
    live, digest, wrong = [], hashlib.sha256(), 0
    for _ in range(STEPS):
        content = random.randbytes(random.choice(SIZES))
        live.append((content, Tensor(content, dtype=dtypes.uint8, device="CUDA").realize()))
        if len(live) > LIVE:
            wanted, tensor = live.pop(random.randrange(len(live)))
            found = bytes(tensor.data())
            wrong += found != wanted
            digest.update(found)
    json.dump({"arrays": STEPS, "wrong": wrong, "digest": digest.hexdigest()}, sys.stdout)


main(int(sys.argv[1]))
