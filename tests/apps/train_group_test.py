"""attentive-train in several processes, started by environment variables as torchrun starts them.

    python3 train_group_test.py <attentive-train> <ON if it has the component distributed>
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/checks"))
from launch_group import ALONE, environments, log_of  # noqa: E402

TRAIN, DISTRIBUTED = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2] in ("ON", "1")
DAY = 24 * 3600  # no limit of a test, however little the machine lets its processes run
FLAGS = ["--layers=1", "--heads=1", "--width=8", "--block=16", "--batch=2", "--device=cpu", "--threads=1", f"--timeout={DAY}"]
NO_GROUP = "this attentive-train was built without the component distributed"


class TrainGroup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.text = self.folder / "text"
        self.text.write_text("to be or not to be, that is the question\n" * 20)

    def command(self, out, *flags):
        given = {str(flag).split("=")[0] for flag in flags}
        others = [flag for flag in FLAGS if flag.split("=")[0] not in given]
        return [TRAIN, "--text", self.text, "--out", self.folder / out, *others, *flags]

    def start(self, size, out, *flags, restarts=0, last=()):
        """Starts the processes, with pipes for both outputs. out: one folder for all, or one for each; last: flags for the last."""
        outs = [out] * size if isinstance(out, str) else out
        processes = []
        for rank, (folder, environment) in enumerate(zip(outs, environments(size))):
            process = subprocess.Popen(self.command(folder, *flags, *(last if rank == size - 1 else ())), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       env={**environment, "TORCHELASTIC_RESTART_COUNT": str(restarts)})
            self.addCleanup(process.kill)
            processes.append(process)
        return processes

    def finish(self, processes):
        """Waits for the processes, which must all succeed; returns their outputs by rank."""
        outputs = [process.communicate() for process in processes]
        self.assertEqual([process.returncode for process in processes], [0] * len(processes), outputs)
        return outputs

    def alone(self, out, *flags):
        done = subprocess.run(self.command(out, *flags), env=ALONE, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def weights(self, out):
        folder = self.folder / out
        step = folder / (folder / "latest").read_text().strip()
        return [(step / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")]

    def back_to(self, step, out, copy):
        """A copy of a run in the state after it saved a certain step."""
        shutil.copytree(self.folder / out, self.folder / copy)
        saved = sorted(path for path in (self.folder / copy).iterdir() if path.is_dir())
        for path in saved:
            if json.loads((path / "state.json").read_text())["step"] > step:
                shutil.rmtree(path)
            else:
                (self.folder / copy / "latest").write_text(path.name + "\n")

    def losses(self, out):
        return [(row["step"], row["loss"], row["gradient_norm"]) for row in self.log(out)]

    def log(self, out):
        return log_of(self.folder / out)

    @unittest.skipIf(DISTRIBUTED, "this attentive-train has the component distributed")
    def test_a_build_without_groups_refuses_them(self):
        for name, value in (("WORLD_SIZE", "2"), ("RANK", "1"), ("WORLD_SIZE", "x")):
            done = subprocess.run(self.command("run"), env={**ALONE, name: value}, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertEqual(done.stderr, f"attentive-train: expected one process, got {name}={value}: this program was built "
                                          "without the component distributed, which needs LibTorch 2.11\n")
            self.assertFalse((self.folder / "run").exists())

    def test_one_process_of_one_is_no_group(self):
        done = subprocess.run(self.command("run", "--steps=2"), env=environments(1)[0], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("processes", done.stderr)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_two_processes_write_what_one_writes(self):
        flags = ["--steps=20", "--accumulate=2", "--evaluate-every=10", "--save-every=10", "--log-every=1"]
        self.alone("one", *flags)
        outputs = self.finish(self.start(2, "two", *flags))
        self.assertEqual(self.weights("two"), self.weights("one"))
        self.assertEqual(self.log("two"), self.log("one"))
        self.assertEqual(len(self.log("two")), 20)
        names = [sorted(path.name for path in (self.folder / out).rglob("*")) for out in ("one", "two")]
        self.assertEqual(names[0], names[1])
        # Only rank 0 prints.
        self.assertIn("2 processes of 1 threads", outputs[0][1])
        self.assertIn("done: ", outputs[0][1])
        self.assertEqual(outputs[1], ("", ""))

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_processes_share_a_file_of_tokens_and_learn_what_is_learned_in_memory(self):
        tokens = self.folder / "tokens"
        flags = ["--steps=6", "--accumulate=3", "--dropout=0.2", "--evaluate-every=3", "--save-every=3", "--keep=0", "--log-every=1"]
        self.finish(self.start(3, "memory", *flags))
        outputs = self.finish(self.start(3, "mapped", *flags, "--tokens", tokens))
        self.assertEqual([error.count(f"tokenizing {self.text} into {tokens}\n") for _, error in outputs], [1, 0, 0])
        self.assertEqual(self.weights("mapped"), self.weights("memory"))
        self.assertEqual(self.log("mapped"), self.log("memory"))
        written = tokens.stat().st_mtime_ns
        for more in (["--tokens", tokens], []):
            with self.subTest(more=more):
                copy = f"resumed{len(more)}"
                self.back_to(3, "mapped", copy)
                outputs = self.finish(self.start(3, copy, "--resume", *more))
                self.assertNotIn("tokenizing", outputs[0][1])
                self.assertEqual(self.weights(copy), self.weights("memory"))
                self.assertEqual(self.log(copy), self.log("memory"))
        self.assertEqual(tokens.stat().st_mtime_ns, written)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_processes_on_one_machine_share_the_tokens_of_a_long_text(self):
        self.text.write_text(("x" * 1023 + "\n") * 16500)  # more than 16 MiB
        flags = ["--steps=2", "--accumulate=2", "--tokenizer=bpe", "--vocab=267", "--evaluate-every=0"]
        outputs = self.finish(self.start(2, ["run", "nowhere"], *flags))
        self.assertIn(f"tokenizing {self.text} into {self.folder / 'run/tokens.bin'}\n", outputs[0][1])
        self.assertFalse((self.folder / "nowhere").exists())
        # Processes on two machines may see different files.
        far = [{**environment, "LOCAL_WORLD_SIZE": "1"} for environment in environments(2)]
        processes = [subprocess.Popen(self.command("far", *flags), env=environment, text=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE) for environment in far]
        outputs = self.finish(processes)
        self.assertNotIn("tokenizing", outputs[0][1])
        self.assertFalse((self.folder / "far" / "tokens.bin").exists())
        self.assertEqual(self.weights("far"), self.weights("run"))

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_tokens_that_rank_0_refuses_end_every_rank(self):
        tokens = self.folder / "tokens"
        tokens.write_text("no tokens\n")
        processes = self.start(3, "run", "--accumulate=3", "--tokens", tokens)
        errors = [process.communicate()[1] for process in processes]
        self.assertEqual([process.returncode for process in processes], [1, 1, 1], errors)
        self.assertIn(f"token_file_mismatch: {tokens}: expected a token file, got another file", errors[0])
        self.assertEqual([error.count("\n") for error in errors], [1, 1, 1], errors)
        short = self.folder / "short"
        short.write_text(self.text.read_text()[:600])
        sizes = f"{self.text.stat().st_size} bytes on rank 0 and 600 on rank 2"
        for text, last, words in (
            (self.text, ["--tokens", self.folder / "new"],
             "expected --tokens in every process or in none, but it is not there on rank 0 and is on rank 2"),
            (short, [], f"expected the same --text in every process, but it has {sizes}"),
        ):
            with self.subTest(words=words):
                processes = []
                for rank, environment in enumerate(environments(3)):
                    command = self.command("run", "--accumulate=3", *(last if rank == 2 else []))
                    command[2] = text if rank == 2 else self.text
                    processes.append(subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                for process in processes:
                    self.assertIn(words, process.communicate()[1])
                    self.assertEqual(process.returncode, 1)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_two_processes_with_a_scaled_loss_write_what_one_writes(self):
        flags = ["--steps=12", "--accumulate=2", "--autocast=float16", "--log-every=1"]
        self.alone("one", *flags)
        for out, more in (("two", ()), ("shared", ("--shard-optimizer",))):
            self.finish(self.start(2, out, *flags, *more))
            self.assertEqual(self.weights(out), self.weights("one"))
            self.assertEqual(self.log(out), self.log("one"))
        self.assertEqual({row["loss_scale"] for row in self.log("two")}, {"65536"})

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_checkpointed_blocks_change_no_bit(self):
        for size in (1, 2, 3):
            with self.subTest(processes=size):
                flags = ["--steps=4", f"--accumulate={size}", "--dropout=0.2", "--layers=2"]
                plain, checkpointed = f"plain{size}", f"checkpointed{size}"
                for out, more in ((plain, []), (checkpointed, ["--checkpoint-blocks"])):
                    if size == 1:
                        self.alone(out, *flags, *more)
                    else:
                        self.finish(self.start(size, out, *flags, *more))
                self.assertEqual(self.losses(checkpointed), self.losses(plain))
                self.assertEqual(self.weights(checkpointed), self.weights(plain))
        model = self.folder / "checkpointed1" / (self.folder / "checkpointed1" / "latest").read_text().strip() / "model.json"
        self.assertEqual(json.loads(model.read_text())["checkpoint"], 1)  # a run that goes on keeps the option

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_a_run_goes_on_in_as_many_processes_bit_for_bit_with_dropout(self):
        for size in (2, 3, 4):
            whole = f"whole{size}"
            self.finish(self.start(size, whole, "--steps=6", f"--accumulate={size}", "--dropout=0.2", "--save-every=2", "--keep=0",
                                   "--log-every=1"))
            for shard in ("false", "true"):
                with self.subTest(processes=size, shard_optimizer=shard):
                    parts = f"parts{size}{shard}"
                    self.back_to(2, whole, parts)
                    # It also evaluates after other updates.
                    self.finish(self.start(size, parts, "--resume", "--evaluate-every=1", f"--shard-optimizer={shard}"))
                    self.assertEqual(self.weights(parts), self.weights(whole))
                    self.assertEqual(self.losses(parts), self.losses(whole))
        done = self.alone("parts2false", "--resume", "--steps=7")
        self.assertIn("note: the checkpoint was made by 2 processes, this run has one process: dropout goes on with other bits",
                      done.stderr)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_an_optimizer_in_shares_writes_the_same_and_goes_on_without(self):
        flags = ["--steps=20", "--accumulate=2", "--decay-steps=30", "--save-every=0"]
        self.alone("one", *flags)
        self.finish(self.start(2, "two", "--shard-optimizer", *flags))
        self.assertEqual(self.weights("two"), self.weights("one"))
        self.alone("one", "--resume", "--steps=30")
        self.finish(self.start(2, "two", "--resume", "--steps=25"))
        options = self.folder / "two" / (self.folder / "two" / "latest").read_text().strip() / "trainer.json"
        self.assertTrue(json.loads(options.read_text())["shard_optimizer"])
        self.finish(self.start(2, "two", "--resume", "--shard-optimizer=false", "--steps=30"))
        self.assertEqual(self.weights("two"), self.weights("one"))

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_what_torchrun_starts_again_goes_on_by_itself(self):
        for size in (2, 3):
            with self.subTest(processes=size):
                whole, parts, new, nowhere = (f"{name}{size}" for name in ("whole", "parts", "new", "nowhere"))
                flags = ["--steps=8", f"--accumulate={size}", "--dropout=0.2", "--save-every=4", "--keep=0", "--tokenizer=bpe",
                         "--vocab=260"]
                self.finish(self.start(size, whole, *flags))
                self.back_to(4, whole, parts)
                outputs = self.finish(self.start(size, parts, *flags, restarts=1))
                self.assertIn("going on after step 4", outputs[0][1])
                self.assertEqual(self.weights(parts), self.weights(whole))
                # It failed before its first checkpoint; rank 0 alone has a folder.
                self.finish(self.start(size, [new] + [nowhere] * (size - 1), *flags, restarts=1))
                self.assertEqual(self.weights(new), self.weights(whole))

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_a_first_start_takes_up_no_run_and_neither_do_processes_that_do_not_see_it(self):
        self.alone("run", "--steps=2")
        outputs = [process.communicate()[1] for process in self.start(2, "run", "--steps=4", "--accumulate=2")]
        self.assertIn("expected a new folder for --out", outputs[0])
        (self.folder / "elsewhere").mkdir()
        done = self.start(2, ["run", "elsewhere"], "--steps=4", restarts=1)
        outputs = [process.communicate()[1] for process in done]
        self.assertEqual([process.returncode for process in done], [1, 1], outputs)
        missing = f"expected a checkpoint in --out {self.folder / 'elsewhere'} for --resume, got none"
        self.assertEqual(outputs[1], f"attentive-train: {missing}\n")
        self.assertRegex(outputs[0], r"\Aattentive-train: .+\n\Z")

    def test_one_process_that_is_started_again_goes_on_by_itself(self):
        self.alone("base", "--steps=2")
        environment = {**ALONE, "TORCHELASTIC_RESTART_COUNT": "1"}
        for name, flags in (("new", []), ("tuned", ["--init-from", self.folder / "base"])):
            with self.subTest(name):
                self.alone(name, *flags, "--steps=2", "--decay-steps=4")
                done = subprocess.run(self.command(name, *flags, "--steps=4"), env=environment, capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("going on after step 2", done.stderr)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_the_timeout_is_how_long_a_process_waits_for_another(self):
        for seconds in (1, 10, 100, 600):  # a machine that is slow to reach its own store needs more
            done = subprocess.run(self.command("run", f"--timeout={seconds}"), env=environments(2)[0], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            if not re.search("has not reached rank 0|has lost the store", done.stderr):
                break
        self.assertIn(f"has waited {seconds} s in vain for rank 1", done.stderr)

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_sigterm_to_any_rank_saves_and_ends_all(self):
        for size, rank in ((2, 0), (2, 1), (3, 2)):
            with self.subTest(rank=rank, processes=size):
                out = f"stopped{size}{rank}"
                processes = self.start(size, out, "--steps=1000000", f"--accumulate={size}", "--evaluate-every=0")
                for line in processes[0].stderr:
                    if "loss" in line:
                        break
                processes[rank].send_signal(signal.SIGTERM)
                text = processes[0].stderr.read()
                self.finish(processes)
                self.assertRegex(text, r"stopped after step \d+; go on, in any number of processes, with: ")
                self.assertTrue((self.folder / out / "latest").exists())

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_progress_that_nobody_reads_saves_and_ends_all(self):
        for size in (1, 2, 3, 4):
            with self.subTest(size=size):
                out = f"unread{size}"
                processes = self.start(size, out, "--steps=1000000", f"--accumulate={size}", "--evaluate-every=0", "--log-every=1")
                for line in processes[0].stderr:
                    if "loss" in line:
                        break
                processes[0].stderr.close()
                self.finish(processes)
                self.assertEqual((self.folder / out / "latest").read_text().strip(), f"step-{len(self.log(out)):08}")

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_every_other_rank_prints_one_line_when_rank_0_dies(self):
        """Rank 0 dies before and while it joins, in steps, evaluations and saves."""
        busy = ("--steps=1000000", "--accumulate=12", "--evaluate-every=1", "--save-every=1", "--keep=2", "--log-every=1")
        for run, (size, steps) in enumerate([(2, None), (4, None), (2, 1), (3, 2), (4, 3), (2, 5), (3, 7), (4, 9)]):
            with self.subTest(size=size, steps=steps):
                # Without a rank 0 that serves the store, the others wait as long as they may.
                processes = self.start(size, f"killed{run}", *busy, f"--timeout={DAY if steps else 5}")
                if steps is None:
                    time.sleep(0.1 * run)
                else:
                    log = self.folder / f"killed{run}" / "log.csv"
                    while processes[0].poll() is None and not (log.exists() and len(log.read_text().splitlines()) > steps):
                        time.sleep(0.001)
                    time.sleep(0.003 * run)
                processes[0].kill()
                processes[0].communicate()
                for process in processes[1:]:
                    error = process.communicate()[1]
                    self.assertEqual(process.returncode, 1)
                    self.assertRegex(error, r"\Aattentive-train: .+\n\Z")

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_processes_with_other_options_are_refused_on_every_rank(self):
        self.alone("run", "--steps=2")
        for size in (2, 3):
            for flags, text in ((["--heads=2"], "the model: num_heads=1, rank {} has the model: num_heads=2"),
                                (["--window=8"], "the model: window=0, rank {} has the model: window=8"),
                                (["--dropout=0.6"], "the model: dropout=0, rank {} has the model: dropout=0.6"),
                                (["--lr=0.5"], '"learning_rate": 0.001, rank {} has "learning_rate": 0.5'),
                                (["--resume"], "but it is not there on rank 0 and is on rank {}")):
                with self.subTest(flags=flags, processes=size):
                    outs = ["new"] * (size - 1) + ["run"]
                    processes = self.start(size, outs, "--steps=4", f"--accumulate={size}", last=flags)
                    for process in processes:
                        error = process.communicate()[1]
                        self.assertEqual(process.returncode, 1, error)
                        self.assertIn(text.format(size - 1), error)
                    self.assertFalse((self.folder / "new" / "latest").exists())

    @unittest.skipUnless(DISTRIBUTED, NO_GROUP)
    def test_what_a_group_cannot_share_is_refused_on_every_rank(self):
        processes = self.start(3, "run")
        for process in processes:
            error = process.communicate()[1]
            self.assertEqual(process.returncode, 1)
            self.assertIn("expected accumulate or batch to be a multiple of the number of processes, 3, got 1 and 2", error)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
