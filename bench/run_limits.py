# SPDX-License-Identifier: Apache-2.0
"""How exact the engines of rate limits are, and what they cost."""

from bench import machine, picture, report

TITLE = "rate limits: errors of samples of 2 s (the paper's experiment), elephants, and costs"
MINUTES = 6
PROGRAM = "steelyard-limits"
EVENT_PROGRAM = "steelyard-limits-event"
MEMORY = 64 << 20
ENGINES = ("own", "cas", "lock", "light-lock")
CONSUMERS = (1, 2, 8, 16)
BUCKETS = (1, 20_000)
DEVICES = ("event_dsw", "event_sw")
# Queue models, and the devices that have them.
MODELS = {"direct": DEVICES, "unordered": DEVICES, "ordered": ("event_sw",)}
# In the forwarder's own pipeline, by two workers.
PIPELINE_PROGRAM = "steelyard-scale"
PIPELINE = (
    ("--engine", "cas"),
    *(("--engine", "atomic", "--event-device", device) for device in DEVICES),
    ("--engine", "atomic", "--event-device", "event_sw", "--event-model", "ordered"),
    ("--engine", "atomic", "--event-model", "unordered"),
    ("--engine", "atomic", "--event-model", "direct"),
)
ELEPHANTS = (90, 150)  # % of what one consumer can handle
# In real time: engine, consumers, samples; the first ones also in quick runs.
DSW = ("--engine", "atomic", "--device", "event_dsw")
SW = ("--engine", "atomic", "--device", "event_sw")
REAL_TIME = (
    (("--engine", "cas"), 2, 20),
    (DSW, 2, 20),
    (SW, 2, 20),
    (("--engine", "light-lock"), 2, 20),
    (("--engine", "lock"), 2, 5),
    (DSW, 1, 5),
    (SW, 1, 5),
    *((("--engine", engine), 1, 5) for engine in ENGINES),
)


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   limits: left out, {machine.lacking(MEMORY)}")
        return
    for consumers in (1, 16) if quick else CONSUMERS:
        for engine in ENGINES:
            if engine != "own" or consumers == 1:
                yield from exactness(engine, consumers, 5 if quick else 20)
        yield from event("virtual", "--consumers", consumers, "--samples", 5 if quick else 20)
    yield from real_time(quick)
    for elephant in ELEPHANTS:
        for engine in (*ENGINES, "atomic"):
            yield from beside(engine, elephant)
        yield from beside("atomic", elephant, "--peek")
    for threads in range(1, len(machine.cpus()) + 1):
        for engine in ENGINES:
            if engine != "own" or threads == 1:
                for buckets in BUCKETS:
                    yield from cost(engine, threads, buckets, "--runs", 11 if quick else 51)
        yield from event_cost(threads, "--runs", 11 if quick else 51)
    if len(machine.cpus()) > 1:
        for engine in PIPELINE:
            yield from pipeline(*engine, "--runs", 11 if quick else 51)


def smoke():
    yield from cost("cas", 1, 100, "--runs", 1, "--packets", 3200)
    yield from cost("light-lock", 2, 100, "--runs", 1, "--packets", 3200)
    yield from event_cost(1, "--runs", 1, "--packets", 3200)
    yield from event("virtual", "--consumers", 2, "--samples", 1)
    yield from event("real", "--consumers", 2, "--samples", 1, "--sample-ms", 50)
    yield from beside("atomic", 90)
    yield from pipeline("--engine", "atomic", "--runs", 1, "--run", 100)


def exactness(engine, consumers, samples):
    options = ("--engine", engine, "--consumers", consumers, "--samples", samples)
    return machine.run_program(PROGRAM, *options)


def cost(engine, threads, buckets, *options):
    options = ("--consumers", threads, "--buckets", buckets, *options)
    return machine.run_program(PROGRAM, "--experiment", "cost", "--engine", engine, *options)


def event(experiment, *options):
    return machine.run_program(EVENT_PROGRAM, "--experiment", experiment, *options)


def pipeline(*options):
    """One limit that all packets of two workers meet."""
    options = ("--limits", 1, "--arrival", "owner", "--sessions", 1000, *options)
    return machine.run_program(PIPELINE_PROGRAM, *options)


def real_time(quick):
    """The experiment at its own speed."""
    if len(machine.cpus()) < 2:
        print("   limits: no experiment in real time, which needs two cores")
        return
    for engine, consumers, samples in REAL_TIME[:2] if quick else REAL_TIME:
        count = ("--consumers", consumers, "--samples", 3 if quick else samples)
        yield from event("real", *engine, *count)


def beside(engine, elephant, *options):
    options = ("--engine", engine, "--consumers", 4, "--elephant", elephant, *options)
    return event("elephant", *options)


def event_cost(threads, *options):
    """Of each model alone; and of a limit behind an atomic queue."""
    options = ("--consumers", threads, *options)
    for model, devices in MODELS.items():
        for device in devices:
            yield from event("cost", "--model", model, "--device", device, *options)
    for device in DEVICES:
        for buckets in BUCKETS:
            of = ("--device", device, "--buckets", buckets)
            yield from event("cost", "--model", "atomic", *of, *options)


def plot(made, path):
    errors = report.select(made, "error of a sample, observed user")
    picture.bars(
        path,
        "limits: error of a 2 s sample of the observed user, by engine and consumers",
        errors,
        "engine",
        [],
        ["consumers"],
    )
    picture.bars(
        path.with_stem("limits-cost"),
        "limits: what a limited packet costs more than one without a limit",
        report.select(made, "cost"),
        "engine",
        ["buckets"],
        ["threads"],
    )
    picture.bars(
        path.with_stem("limits-real"),
        "limits: the same in real time, 2.3 million packets/s",
        report.select(made, "error of a sample, observed user in real time"),
        "engine",
        ["consumers"],
    )
    picture.bars(
        path.with_stem("limits-elephant"),
        "limits: what users within their limit lose beside one who floods",
        report.select(made, "lost by users beside an elephant"),
        "engine",
        ["elephant"],
    )
    picture.bars(
        path.with_stem("limits-event"),
        "limits: what an event costs, by the model of its queue",
        report.select(made, "cost of an event"),
        "model",
        ["device"],
        ["threads"],
    )
