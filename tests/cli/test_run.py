# SPDX-License-Identifier: MIT
"""`cachealloc run` is transparent: status, signals, other preloads, arguments, streams."""

import os
import shutil
import signal
import subprocess
import sys

import pytest
from conftest import LIBRARY
from command import COMMAND, ROOT, cli, compiler, environment, script, stub_build  # noqa: F401  (fixtures)

QUICK_EVERY = 4  # conftest.py


@pytest.mark.parametrize("status", [0, 1, 3, 124, 125, 126, 127, 255])
def test_exit_status_is_the_programs(cli, script, status):
    assert cli("run", script(f"exit {status}")).returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV, signal.SIGPIPE])
def test_same_signal(cli, script, number):
    assert cli("run", "--", script(f"kill -{int(number)} $$")).returncode == -number


def test_126_and_127_as_env(cli, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("data")
    done = cli("run", plain)
    assert done.returncode == 126 and "ermission" in done.stderr
    done = cli("run", "no-such-program-here")
    assert done.returncode == 127 and done.stderr.count("\n") == 1
    assert cli("run", tmp_path / "missing" / "program").returncode == 127
    assert cli("run", tmp_path).returncode == 126
    lost = tmp_path / "lost.sh"
    lost.write_text("#!/no/such/interpreter\n")
    lost.chmod(0o755)
    done = cli("run", lost)
    assert done.returncode == 127 and "interpreter" in done.stderr


def test_a_program_that_only_lies_here_is_said_to(cli, script, tmp_path):
    """Not that its interpreter is missing, which one that PATH finds may lack."""
    program = script("exit 3", "drv")
    (tmp_path / "train.py").write_text("")
    done = cli("run", "drv", cwd=tmp_path)
    assert done.returncode == 127 and done.stderr == "cachealloc: error: run: drv: not found; a file of that name lies here: ./drv\n"
    done = cli("run", "train.py", "-n", "1", cwd=tmp_path)
    assert done.returncode == 127 and f"not found; `{COMMAND} run -- python3 train.py -n 1` runs that file" in done.stderr
    program.write_text("#!/no/such/interpreter\n")
    done = cli("run", "drv", cwd=tmp_path, PATH=tmp_path)
    assert done.returncode == 127 and "its interpreter or loader was not found" in done.stderr


@pytest.mark.parametrize("verb, status", [("run", 125), ("compare", 2)])
def test_another_library_is_refused(cli, script, tmp_path, verb, status):
    """The loader would say a line about it, and the program would run without a cache."""
    (tmp_path / "other.so").write_bytes(b"\x7fELF")
    done = cli(verb, "--library", tmp_path / "other.so", script(f"touch {tmp_path}/started"))
    assert done.returncode == status and done.stderr.endswith("other.so is not libcachealloc.so\n") and not (tmp_path / "started").exists()


@pytest.mark.parametrize("words, message", [
    ([], "no program given"),
    (["--statz", "true"], "did you mean --stats?"),
    (["--conf"], "--conf needs a value"),
    (["--strict=1", "true"], "--strict takes no value"),
    (["--library", "/no/such/file", "true"], "was not found"),
])
def test_125_and_one_line_for_our_own_errors(cli, words, message):
    done = cli("run", *words)
    assert done.returncode == 125
    assert message in done.stderr and done.stderr.count("\n") == 1 and not done.stdout


def test_125_without_a_library(cli, tmp_path):
    done = cli("run", "true", CACHEALLOC_BUILD=tmp_path)
    assert done.returncode == 125 and "meson setup build" in done.stderr


def test_library_comes_first_and_other_preloads_stay(cli, script, stub_build):
    show = script('echo "$LD_PRELOAD"')
    ours = f"{stub_build}/shim/libcachealloc.so"
    assert cli("run", show).stdout.strip() == ours
    # a preload that the loader itself finds: a name that is no error in any process
    done = cli("run", show, LD_PRELOAD="libc.so.6")
    assert done.stdout.strip() == f"{ours}:libc.so.6"
    done = cli("run", show, LD_PRELOAD=f"libc.so.6 {ours}")
    assert done.stdout.strip() == f"{ours}:libc.so.6"


def test_a_path_the_loader_would_split_is_refused(cli, stub_build, tmp_path):
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "libcachealloc.so").write_bytes((stub_build / "shim" / "libcachealloc.so").read_bytes())
    done = cli("run", "--library", folder / "libcachealloc.so", "true")
    assert done.returncode == 125 and "space or a colon" in done.stderr


@pytest.mark.parametrize("words, variable, value", [
    (["--stats"], "CACHEALLOC_STATS", "1"),
    (["--stats=x-%p.json"], "CACHEALLOC_STATS", "x-%p.json"),
    (["--stats-interval", "10s"], "CACHEALLOC_STATS_INTERVAL", "10s"),
    (["--trace=t-%p.trace"], "CACHEALLOC_TRACE", "t-%p.trace"),
    (["--snapshot=s-%n.pickle"], "CACHEALLOC_SNAPSHOT", "s-%n.pickle"),
    (["--snapshot-on", "oom,usr1"], "CACHEALLOC_SNAPSHOT_ON", "oom,usr1"),
    (["--limit", "8G"], "CACHEALLOC_LIMIT", "8G"),
    (["--take-over", "torch,jax"], "CACHEALLOC_TAKEOVER", "torch,jax"),
    (["--log", "info"], "CACHEALLOC_LOG", "info"),
    (["--log-file=l.log"], "CACHEALLOC_LOG_FILE", "l.log"),
    (["--conf", "a:1", "--conf=b:[1,2]"], "CACHEALLOC_CONF", "a:1,b:[1,2]"),
    (["--disable"], "CACHEALLOC_DISABLE", "1"),
    (["--disable=count"], "CACHEALLOC_DISABLE", "count"),
    (["--strict"], "CACHEALLOC_STRICT", "1"),
])
def test_each_option_sets_its_variable(cli, script, tmp_path, words, variable, value):
    done = cli("run", *words, "--", script(f'echo "${variable}"'), cwd=tmp_path)
    assert done.stdout == value + "\n"


def test_every_variable_has_an_option():
    from cachealloc_cli import settings
    from cachealloc_cli.launch import OPTIONS
    for name, option in settings.VARIABLES:
        assert option in OPTIONS
        assert name[len("CACHEALLOC_"):].lower().replace("_", "") in [each.replace("-", "") for each in option.names]


def test_variables_are_those_of_the_table():
    """The options of `run` and config/options.def name the same variables."""
    from cachealloc_cli import paths, settings
    if not os.path.exists(paths.options()):
        pytest.skip("scripts/options.json is not there")
    assert sorted(settings.names("built")) == sorted(name for name, _ in settings.VARIABLES)


def test_help_lists_the_keys(cli):
    from cachealloc_cli import settings
    keys = settings.table("key", "built")
    if not keys:
        pytest.skip("scripts/options.json is not there")
    text = cli("run", "--help").stdout
    assert all(row["name"] in text for row in keys)


def needs_the_library():
    if not LIBRARY.is_file():
        pytest.skip(f"{LIBRARY} is not built")
    if "CACHEALLOC_TEST_SANITIZER" in os.environ:
        pytest.skip("Python cannot load a library with a sanitizer")


@pytest.mark.parametrize("words, message", [
    (["--conf", "max_spilt_size_mb:64"], "did you mean max_split_size_mb?"),
    (["--conf", "max_split_size_mb:64", "--conf", "reuse:never"],
     "CACHEALLOC_CONF: reuse: 'never' is refused: expected ordered"),
    (["--conf", "background_thread:True"], "not in this version"),
    (["--conf", "zero:True,zero:False"], "more than once: the last one, 'False', is refused"),
    (["--stats=json"], "as ./name has"), (["--trace", "1"], "as ./name has"), (["--limit", "8X"], "'8X'"),
    (["--take-over", "auto"], "CACHEALLOC_TAKEOVER: 'auto' is refused: expected off, or a list of torch"),
    (["--disable=2"], "'2'"), (["--log", "loud"], "'loud'"), (["--stats-interval", "1"], "'1'"),
])
@pytest.mark.parametrize("dry", [[], ["-n"]])
def test_a_bad_setting_is_refused_before_the_program_starts(cli, script, tmp_path, words, message, dry):
    """By the library's own parser: one line a fault."""
    needs_the_library()
    program = script(f"touch {tmp_path}/started")
    done = cli("run", *dry, "--library", LIBRARY, *words, "--", program, cwd=tmp_path)
    assert done.returncode == 125 and not (tmp_path / "started").exists() and not done.stdout
    assert message in done.stderr and done.stderr.count("\n") == 1 and done.stderr.startswith("cachealloc: error: run: ")


def test_every_bad_setting_has_its_line_and_the_environments_own_are_the_programs(cli, script, tmp_path):
    needs_the_library()
    done = cli("run", "--library", LIBRARY, "--conf", "a:1,b:2", "true")
    assert done.returncode == 125 and done.stderr.count("\n") == 2
    done = cli("run", "--library", LIBRARY, "--conf", "reuse_slack_mb:1", script("exit 7"), CACHEALLOC_LOG="loud",
               CACHEALLOC_CONF="bad")
    assert done.returncode == 7 and not done.stderr


def test_options_after_the_program_are_its_own(cli, script, tmp_path):
    done = cli("run", "--stats", script('echo "$@"'), "--stats", "-x", "--", "--help", cwd=tmp_path)
    assert done.stdout == "--stats -x -- --help\n"


def test_environment_variables_reach_the_program(cli, script):
    done = cli("run", script('echo "$CACHEALLOC_CONF $CACHEALLOC_LOG"'), CACHEALLOC_CONF="k:1", CACHEALLOC_LOG="off")
    assert done.stdout == "k:1 off\n"


def test_nothing_of_ours_is_left_in_the_process(cli, script):
    """The program replaces the command: its parent is the caller, and SIGPIPE is not ignored."""
    done = cli("run", script('echo $PPID; grep SigIgn /proc/self/status'))
    parent, ignored = done.stdout.split("\n")[:2]
    assert int(parent) == os.getpid()
    assert not int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))


def test_how_a_build_that_is_set_up_gets_the_simulator(cli, stub_build, tmp_path):
    build = tmp_path / "a b"
    shutil.copytree(stub_build, build)
    (build / "build.ninja").write_text("")
    done = cli("run", "--sim", "--library", stub_build / "shim" / "libcachealloc.so", "true", CACHEALLOC_BUILD=build)
    assert f"`meson configure -Dsimulator=enabled '{build}' && ninja -C '{build}'` builds it" in done.stderr


def test_sim_puts_the_simulator_first(cli, script, stub_build):
    folder = stub_build / "tests" / "sim"
    done = cli("run", "--sim", "true")
    assert done.returncode == 125
    assert f"`meson setup -Dsimulator=enabled {stub_build} {ROOT} && ninja -C {stub_build}` builds it" in done.stderr
    folder.mkdir(parents=True)
    (folder / "libcuda.so.1").write_bytes(b"SIMCUDA_MEM")
    try:
        done = cli("run", "--sim", script('echo "$LD_LIBRARY_PATH"'), LD_LIBRARY_PATH="/elsewhere")
        assert done.stdout == f"{folder}:/elsewhere\n"
    finally:
        (folder / "libcuda.so.1").unlink()
        folder.rmdir()


def test_dry_run_prints_a_line_for_the_shell(cli, stub_build):
    done = cli("run", "-n", "--conf", "a:1,b:[2,3]", "echo", "two words")
    assert done.stdout == (f"LD_PRELOAD={stub_build}/shim/libcachealloc.so CACHEALLOC_CONF='a:1,b:[2,3]' "
                           "echo 'two words'\n")


def test_stdin_and_stdout_pass_through(stub_build):
    done = subprocess.run([sys.executable, COMMAND, "run", "cat"], input=b"\0\xff binary",
                          stdout=subprocess.PIPE, env=environment(CACHEALLOC_BUILD=stub_build), timeout=60)
    assert done.stdout == b"\0\xff binary"


def test_works_through_a_link_and_from_anywhere(stub_build, tmp_path):
    link = tmp_path / "cachealloc"
    link.symlink_to(COMMAND)
    done = subprocess.run([link, "run", "pwd"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, timeout=60,
                          env=environment(CACHEALLOC_BUILD=stub_build))
    assert done.returncode == 0 and done.stdout.strip() == str(tmp_path.resolve())


def test_installed_layout(stub_build, tmp_path):
    """PREFIX/bin/cachealloc finds PREFIX/share/cachealloc and PREFIX/lib, wherever PREFIX is."""
    import shutil
    (tmp_path / "bin").mkdir()
    (tmp_path / "lib").mkdir()
    shutil.copy(COMMAND, tmp_path / "bin" / "cachealloc")
    shutil.copytree(COMMAND.parent / "cachealloc_cli", tmp_path / "share" / "cachealloc" / "cachealloc_cli",
                    ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(stub_build / "shim" / "libcachealloc.so", tmp_path / "lib")
    done = subprocess.run([tmp_path / "bin" / "cachealloc", "run", "sh", "-c", "echo $LD_PRELOAD"],
                          stdout=subprocess.PIPE, text=True, timeout=60, env=environment())
    assert done.stdout.strip() == str(tmp_path / "lib" / "libcachealloc.so")
