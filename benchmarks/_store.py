import sys, time
from dataclasses import replace
from gemmgen import presets
from gemmgen.bench.gpu import GpuProblem, ours, cublas
from gemmgen.bench.measure import measure
from gemmgen.bench.records import parse_sizes
from gemmgen.runtime.cuda_devices import pick
t0 = time.time()
plans = {
  "4096": [("wgmma_128x256_s4", c) for c in (0, 1, 2)] + [("wgmma_128x256_s4", -3)],
  "1024": [("wgmma_64x128_s6", c) for c in (0, 1, 2)] + [("wgmma_128x128_s4", c) for c in (0, 2)],
  "2048": [("wgmma_128x256_s4", c) for c in (0, 1, 2)] + [("wgmma_128x128_s4", c) for c in (0, 2)],
  "512": [("wgmma_64x128_s6", c) for c in (0, 2)] + [("wgmma_64x64_s8", c) for c in (0, 1)],
  "8192": [("wgmma_128x256_s4", c) for c in (0, 2)],
}
for text, jobs in plans.items():
    size = parse_sizes(text)[0]
    problem = GpuProblem(size, "bfloat16", 0, pick(None))
    them = []
    for name, c in jobs:
        p = presets.load(name)
        s = replace(p.schedule, name=None, c_stages=max(c, 0))
        if c == -3: s = replace(s, c_stages=4, stages=3)
        k = ours(problem, p.spec, s)
        if not k.accuracy.passed: print("WRONG", name, c, k.accuracy)
        them.append((f"{name} c{c}", k))
    peer = cublas(problem)
    timings = measure([k for _, k in them] + [peer], 7, 0.0, 0, lambda: None)
    best = timings[-1].seconds
    print(f"-- {text} cublas {best*1e6:.2f} us ({time.time()-t0:.0f} s)")
    for (n, _), t in zip(them, timings): print(f"{n:32s} {t.seconds*1e6:9.2f} us {best/t.seconds:.3f}", flush=True)
    for _, k in them: k.close()
    peer.close()
