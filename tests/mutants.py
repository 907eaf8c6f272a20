"""Faults put into the code on purpose, one at a time: each must be noticed by a test.

    make mutants                       # all of them
    python tests/mutants.py export     # those in files whose name has this word

A test that never fails proves nothing. `test_mutants.py` keeps this list true to the code: every text below still
stands where it is said to stand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Mutant:
    """One fault: in `file`, `before` becomes `after`; `tests` are pytest's arguments for the tests that notice."""

    file: str
    before: str
    after: str
    tests: str


MUTANTS = (
    # what clients take home
    Mutant(
        "records/take_home.py",
        "power = info(metric).power",
        "power = 1",
        "tests/records/test_take_home.py -k pooling",
    ),
    Mutant(
        "records/take_home.py",
        'made = line["round"] - (1 if entry == "received" else 0)',
        'made = line["round"]',
        "tests/records/test_take_home.py -k received_first",
    ),
    Mutant(
        "records/take_home.py",
        "return sign * score, -loss, one.entry == self.scored, -one.round",
        "return sign * score, loss, one.entry == self.scored, -one.round",
        "tests/records/test_take_home.py -k equal_scores",
    ),
    Mutant(
        "runs/scoring.py",
        "len(held) if counts else 0 for held, counts in",
        "len(held) for held, counts in",
        "tests/runs/test_take_home_runs.py -k poisoned",
    ),
    Mutant(
        "runs/scoring.py",
        "return {**best, CHOSEN: Snapshot(one.round, one.score, models[one.entry])}",
        'return {**best, CHOSEN: Snapshot(one.round, one.score, models.get("own", models[one.entry]))}',
        "tests/runs/test_take_home_runs.py -k by_hand",
    ),
    Mutant(
        "federation/server/app.py",
        "    strategy.say_farewell(grid)\n",
        "",
        "tests/federation/test_take_home_federation.py -k 'engines and alike'",
    ),
    Mutant(
        "federation/silo/round.py",
        ' or details["score"]["round"] > choice["round"]',
        "",
        "tests/federation/test_take_home_federation.py -k gone",
    ),
    # the audit
    Mutant(
        "runs/audit/bounds.py",
        "2 * guesses.canaries * delta * alpha",
        "delta * alpha",
        "tests/runs/audit/test_bounds.py -k papers",
    ),
    Mutant(
        "runs/audit/bounds.py",
        "right, wrong = right + i / (r - i) * (needed - wrong), needed",
        "right, wrong = right + (needed - wrong), needed",
        "tests/runs/audit/test_bounds.py -k linear_program",
    ),
    Mutant(
        "runs/audit/bounds.py",
        "math.prod(share / high for share in shares)",
        "math.prod(share / 0.5 for share in shares)",
        "tests/runs/audit/test_bounds.py -k averages",
    ),
    Mutant(
        "runs/audit/attack.py",
        "found / (values + ratios[unlikely.argmin()])",
        "found / ratios[unlikely.argmin()]",
        "tests/runs/audit/test_audit.py -k ridge",
    ),
    Mutant(
        "runs/audit/attack.py",
        "rows -= (rows @ basis.T) @ basis",
        "rows = rows * basis.any()",
        "tests/runs/audit/test_audit.py -k 'same_way and scaffold'",
    ),
    Mutant(
        "runs/audit/attack.py",
        "span(torch.cat([others, gradients.mean(0, keepdim=True)]))",
        "span(torch.cat([others, gradients.mean(0, keepdim=True), *(way for each in ways.values() for way in each)]))",
        "tests/runs/audit/test_audit.py -k same_way",
    ),
    Mutant(
        "runs/audit/finding.py",
        "self.reach <= self.claimed",
        "self.reach <= 0",
        "tests/runs/audit/test_audit.py -k can_not_refute",
    ),
    Mutant(
        "methods/advice.py",
        'facts["rank"] > 0 or share <= HIDING',
        'facts["rank"] > 0',
        "tests/methods/test_under_privacy.py -k hides",
    ),
    Mutant(
        "kernels/adam.py",
        "v = old2 * v + new2 * g * g",
        "v = old2 * v + new2 * g",
        "tests/kernels/test_kernels.py -k step",
    ),
    Mutant(
        "kernels/pool.py",
        "first = tl.where(better, k, first)",
        "first = tl.where(better, 1, first)",
        "tests/kernels/test_kernels.py -k gradient",
    ),
    Mutant(
        "models/client_layers.py",
        "i : last + i : down, j : end + j : right]",
        "i : last + i : right, j : end + j : down]",
        "tests/models/test_client_layers.py -k in_windows",
    ),
    Mutant(
        "runs/setup.py",
        "_tells_pictures(flat, material) and not config.private",
        "_tells_pictures(flat, material)",
        "tests/training/test_precision.py -k pictures",
    ),
    Mutant(
        "runs/audit/finding.py",
        "self.bound > self.claimed",
        "self.bound > 2 * self.claimed",
        "tests/runs/audit/test_audit.py -k 'off_is_caught or without_a_promise'",
    ),
    Mutant(
        "runs/audit/verdict.py",
        "account.scaled(spent, high)",
        "account.scaled(spent, 1.0)",
        "tests/runs/audit/test_audit.py -k 'honest_clients_pass and fedavg'",
    ),
    # a silo's own privacy
    Mutant(
        "federation/silo/round.py",
        "            KeptReplies(self.privacy).pay(k, local.spent[0], asked, answer)\n",
        "            pass\n",
        "tests/federation/test_privacy_leaving.py -k ledger_has_each_round",
    ),
    Mutant(
        "federation/silo/round.py",
        "secret=secrets.randbits(128)",
        "secret=None",
        "tests/federation/test_privacy_leaving.py -k does_not_follow",
    ),
    Mutant(
        "federation/silo/round.py",
        "allowed = NOT_PROTECTED if self.privacy is not None else metric_names",
        "allowed = metric_names",
        "tests/federation/test_privacy_leaving.py -k 'exactly_the_list and fedamp'",
    ),
    Mutant(
        "federation/silo/app.py",
        "if not self.private and (promised",
        "if self.private and (promised",
        "tests/federation/test_privacy_leaving.py -k nobody_asks",
    ),
    Mutant(
        "federation/silo/privacy_ledger.py",
        "    if epsilon > limit:\n",
        "    if account.epsilon() > limit:\n",
        "tests/federation/test_privacy_ledger.py -k exceed",
    ),
    Mutant(
        "federation/silo/privacy_ledger.py",
        "if account.unprotected is None and (missing := self._missing(account, accepted)):",
        "if missing := '':",
        "tests/federation/test_privacy_ledger.py -k 'own_making or older_copy'",
    ),
    Mutant(
        "federation/silo/privacy_account.py",
        "return self.before.epsilon + epsilon(spending, self.promise.delta)",
        "return epsilon(spending, self.promise.delta)",
        "tests/federation/test_privacy_ledger.py -k before_is_added",
    ),
    Mutant(
        "federation/silo/protection.py",
        "kept = None if found.unprotected else old.limit",
        "kept = None",
        "tests/federation/test_privacy_wishes.py -k restart_keeps",
    ),
    Mutant(
        "federation/silo/privacy_ledger.py",
        "return not self.path.exists() and Ledger(self.folder).private",
        "return False",
        "tests/federation/test_privacy_wishes.py -k lost_with_its_ledger",
    ),
    Mutant(
        "federation/silo/ledger.py",
        '{**self._read(), "rounds": self.trained + 1}',
        '{"rounds": self.trained + 1}',
        "tests/federation/test_privacy_wishes.py -k lost_with_its_ledger",
    ),
    Mutant(
        "federation/silo/protection.py",
        ', ("delta", old.delta, promise.delta):',
        ",:",
        "tests/federation/test_privacy_wishes.py -k weaker_promise",
    ),
    Mutant(
        "federation/silo/protection.py",
        "        if wished.promise != found.promise:\n",
        "        if False:\n",
        "tests/federation/test_privacy_wishes.py -k weaker_promise",
    ),
    Mutant(
        "federation/silo/privacy_ledger.py",
        "            account = replace(self.account(), accepted=accepted)\n            self._write(account)\n",
        "            account = replace(self.account(), accepted=accepted)\n",
        "tests/federation/test_privacy_ledger.py -k spent_before",
    ),
    Mutant(
        "federation/silo/protection.py",
        "    finite_epsilon(wished, wished.next_round)\n",
        "",
        "tests/federation/test_privacy_wishes.py -k infinite",
    ),
    # asked for the same again, and out
    Mutant(
        "federation/silo/round.py",
        "answer = self.answered(asked) or self._train(",
        "answer = self._train(",
        "tests/federation/test_kept_replies.py -k 'lost_reply and fedamp'",
    ),
    Mutant(
        "federation/silo/kept_replies.py",
        "if paid is None or self._digest(asked) != paid:",
        "if not self._path(asked).exists():",
        "tests/federation/test_kept_replies.py -k 'never_leaves or does_not_name'",
    ),
    Mutant(
        "federation/silo/kept_replies.py",
        "found.update(part.detach().cpu().contiguous().numpy().tobytes())",
        "pass",
        "tests/federation/test_kept_replies.py -k another_message",
    ),
    Mutant(
        "federation/silo/kept_replies.py",
        "json.dumps([life, k, accepted, anew])",
        "json.dumps([k, accepted, anew])",
        "tests/federation/test_kept_replies.py -k another_message",
    ),
    Mutant(
        "federation/silo/kept_replies.py",
        "if path.name.removesuffix(ENDING) not in kept:",
        "if not kept:",
        "tests/federation/test_kept_replies.py -k last_ones",
    ),
    Mutant(
        "federation/silo/app.py",
        "if not repeated or house.privacy.uncounted():",
        "if True:",
        "tests/federation/test_kept_replies.py -k 'lost_reply and fedamp'",
    ),
    Mutant(
        "federation/silo/app.py",
        "if not repeated or house.privacy.uncounted():",
        "if not repeated:",
        "tests/federation/test_kept_replies.py -k 'killed_after and fedamp'",
    ),
    Mutant(
        "federation/silo/app.py",
        "    else:\n        house.check(accepted)\n",
        "    house.check(accepted)\n",
        "tests/federation/test_kept_replies.py -k spent_all",
    ),
    Mutant(
        "federation/server/strategy.py",
        "        if reason in OUT:\n",
        "        if False:\n",
        "tests/federation/test_out.py -k last_round",
    ),
    Mutant(
        "federation/server/strategy.py",
        ", **self.attendance.out_and_here(grid)}",
        "}",
        "tests/federation/test_out.py -k last_model",
    ),
    Mutant(
        "federation/server/attendance.py",
        "or who in self.willing) and not self.state.standing(who).out",
        "or who in self.willing)",
        "tests/federation/test_out.py -k 'pauses or last_round'",
    ),
    Mutant(
        "federation/server/attendance.py",
        'return self._out(who) and self.connected.get(who, "") != known.connected',
        "return False",
        "tests/federation/test_out.py -k pauses",
    ),
    Mutant(
        "federation/server/attendance.py",
        "        elif self._out(who):  # it does not answer, say: why it is out is still true\n",
        "        elif False:\n",
        "tests/federation/test_out.py -k does_not_answer",
    ),
    Mutant(
        "federation/server/resume.py",
        '            standing.out, standing.reason = True, silo["reason"]\n',
        "            pass\n",
        "tests/federation/test_out.py -k survives",
    ),
    Mutant(
        "federation/silo/privacy_account.py",
        "        each = self.next_round or (",
        "        each = self.expected or (",
        "tests/federation/test_privacy_ledger.py -k last_ones_cost",
    ),
    Mutant(
        "config/sources.py",
        "    check_protected(values)\n",
        "",
        "tests/runs/test_private_runs.py -k even_at_their_defaults",
    ),
    # what a result belongs to
    Mutant(
        "records/inputs.py",
        "return list(changed.values())",
        "return []",
        "tests/trust/test_identity.py -k refused_in_the_old_folder",
    ),
    Mutant(
        "runs/identity.py",
        "return tensors_digest([clients.x, clients.y, *scaling], words)",
        "return tensors_digest([clients.x, *scaling], words)",
        "tests/trust/test_identity.py -k 'what_makes_other_data and label'",
    ),
    Mutant(
        "runs/identity.py",
        "return tensors_digest([w.params, w.buffers], code_digest(flat.module))",
        'return ""',
        "tests/trust/test_identity.py -k 'from_python_is_refused and first'",
    ),
    Mutant(
        "models/fingerprint.py",
        "self.sum.update(code.co_code)",
        "pass",
        "tests/trust/test_identity.py -k told_apart",
    ),
    Mutant(
        "models/fingerprint.py",
        'self.add("set", sorted(code_digest(entry) for entry in thing))',
        'self.add("set", [code_digest(entry) for entry in thing])',
        "tests/trust/test_identity.py -m slow -k every_process",
    ),
    # records
    Mutant(
        "records/folder.py",
        "if there is not None and self.begun and (what := self.differences(config)):",
        "if there is not None and False and (what := self.differences(config)):",
        "tests/trust/test_identity.py -k another_run_from_python",
    ),
    Mutant(
        "records/folder.py",
        "if self.config() is None or self.differences(config):",
        "if self.config() is None:",
        "tests/trust/test_identity.py -k refused_in_the_old_folder",
    ),
    Mutant(
        "records/folder.py",
        'return result if result is not None and result.get("finished") else None',
        "return result",
        "tests/trust/test_kept_models.py -k 'seen_enough and fedamp'",
    ),
    Mutant(
        "records/folder.py",
        "saved, before = None, []  # rounds are missing from the record: begin anew",
        "pass",
        "tests/test_mutants.py -k missing_rounds",
    ),
    Mutant(
        "records/checkpoints.py",
        "best = {entry: Snapshot(k, score, kept[entry], *loss) for entry, (k, score, *loss) in scores.items()}",
        "best = {}",
        "tests/trust/test_kept_models.py -k survives_a_stop",
    ),
    # runs
    Mutant(
        "runs/loop.py",
        "return observer(line) is not False, journal.due()",
        "return (observer(line), True)[1], journal.due()",
        "tests/trust/test_kept_models.py -k 'seen_enough and separate'",
    ),
    Mutant(
        "runs/loop.py",
        "            journal.forget_after(at.k)\n",
        "",
        "tests/trust/test_kept_models.py -k between_a_line_and_its_state",
    ),
    Mutant(
        "runs/scoring.py",
        'made = k - 1 if entry == "received" else k',
        "made = k",
        "tests/trust/test_kept_models.py -k 'survives_a_stop or fine_tuned_twin or received_is'",
    ),
    Mutant(
        "used_memory.py",
        "weakref.finalize(view, freed.back, memory)",
        "weakref.finalize(memory.numpy().data, freed.back, memory)",
        "tests/test_used_memory.py -k refers",
    ),
    Mutant(
        "training/stacked_or_loop.py",
        "LAYER_WORK * _layers(trainer)",
        "LAYER_WORK",
        "tests/training/test_stacked_or_loop.py -k much_to_do",
    ),
    Mutant(
        "runs/setup.py",
        'choice = replace(self.choice, engine=way["engine"], chunk=way["chunk"], threads=threads, workers=workers)',
        "choice = self.choice",
        "tests/trust/test_kept_models.py -k second_resume",
    ),
    Mutant(
        "runs/scoring.py",
        "score if task.higher_is_better else -score, rows",
        "score, rows",
        "tests/trust/test_kept_models.py -k lowest_error",
    ),
    Mutant(
        "runs/result.py",
        "return entry, self.best_models.get(entry, self.last_models[entry])",
        "return entry, self.last_models[entry]",
        "tests/trust/test_kept_models.py -k by_validation_and_never",
    ),
    # a model in use
    Mutant(
        "runs/result.py",
        "module.load_state_dict(self.model.state_dict(rows[slice(number, number + 1)]))",
        "module.load_state_dict(self.model.state_dict(rows[slice(0, 1)]))",
        "tests/runs/test_predict.py -k every_way",
    ),
    Mutant(
        "runs/trained_model.py",
        'if known.get("code") != structure_digest(flat.module, builder):',
        "if False:",
        "tests/runs/test_loading.py -k 'ones_own or has_changed'",
    ),
    Mutant(
        "runs/in_use/predictor.py",
        "return (x.to(self.dtype) - self.per_channel(self.shift)) / self.per_channel(self.scale)",
        "return x.to(self.dtype)",
        "tests/runs/test_predict.py -k pictures",
    ),
    Mutant(
        "runs/in_use/onnx_file.py",
        "if not worst <= TOLERANCE:",
        "if False:",
        "tests/runs/test_onnx_file.py -k not_written",
    ),
    Mutant(
        "runs/in_use/onnx_file.py",
        "kind = torch.float32 if asked.schema.pictures else torch.float64",
        "kind = torch.float32",
        "tests/runs/test_onnx_file.py -m slow -k its_score",
    ),
    Mutant(
        "records/client_names.py",
        "        if client in known:",
        "        if client in known and not client.isdigit():",
        "tests/records/test_client_names.py",
    ),
    Mutant(
        "data/silos/unlabelled_tables.py",
        "        if table.commas:",
        "        if False:",
        "tests/runs/test_bad_predictions.py -k decimals",
    ),
    Mutant(
        "data/clients.py",
        "train = [positions[~unseen[self._originals(positions)]] for positions in train]",
        "pass",
        "tests/trust/test_validation.py",
    ),
    Mutant(
        "runs/identity.py",
        "method=own_code(method),",
        "method=None,",
        "tests/trust/test_identity.py -k body_of_a_method",
    ),
    Mutant(
        "data/clients.py",
        "return positions if self.copy_of is None else self.copy_of[positions]",
        "return positions",
        "tests/trust/test_validation.py -k copy_of_it",
    ),
    # replies and pulls
    Mutant(
        "runs/reply_checks.py",
        "if far > max(FREE * sent, factor * usual[who], SHORT):",
        "if False:",
        "tests/trust/test_replies.py -k 'ten_fold_flip_is_refused and fedamp'",
    ),
    Mutant(
        "training/optimizers.py",
        "        if pull is not None:\n",
        "        if False:\n",
        "tests/trust/test_long_runs.py -k plain_step_is_the_implicit",
    ),
    # compare
    Mutant(
        "runs/compare/playing.py",
        "lambda: _check_inputs(runs, targets, whole, folder)",
        "lambda: None",
        "tests/trust/test_identity.py -k 'two_kinds_of_data'",
    ),
    Mutant(
        "runs/compare/planning.py",
        "texts.append(data_digest(load_material(first, data_dir)))",
        "pass",
        "tests/trust/test_identity.py -k comparison_of_other_data",
    ),
    Mutant(
        "runs/compare/choosing.py",
        'table = score_table(record.lines, scored, metric, on="validation")',
        "table = score_table(record.lines, scored, metric)",
        "tests/trust/test_comparisons.py -k never_sees_a_test_sample",
    ),
    Mutant(
        "runs/compare/playing.py",
        "lambda: check_possible([run for run in runs if run.name not in done], given)",
        "lambda: None",
        "tests/trust/test_comparisons.py -k refused_comparison_writes_nothing",
    ),
    # export
    Mutant(
        "runs/in_use/export.py",
        '"test": finite(kept.scores[number])',
        '"test": finite(run.summary.per_client[number])',
        "tests/trust/test_kept_models.py -k exported_score",
    ),
    Mutant(
        "runs/trained_model.py",
        'if known.get("code") != structure_digest(flat.module, builder):',
        "if False:",
        "tests/trust/test_identity.py -k edited_since",
    ),
    # worse off than alone
    Mutant(
        "methods/alone_beside.py",
        "return {ALONE: grad(rows[ALONE], of=ALONE)}",
        "return {ALONE: grad(rows[ALONE], of=ALONE) + 1e-9}",
        "tests/methods/test_alone_beside.py -k last_bit",
    ),
    Mutant(
        "methods/alone_beside.py",
        "rows = {name: rows for name, rows in state.rows.items() if name != ALONE}",
        "rows = dict(state.rows)",
        "tests/methods/test_alone_beside.py",
    ),
    Mutant(
        "federation/silo/round.py",
        "if name in allowed}",
        "}",
        "tests/federation/test_silo_alone.py -k tell",
    ),
    Mutant(
        "federation/silo/alone.py",
        "return method.with_alone(state, silo.setup.w)",
        "return state",
        "tests/federation/test_silo_alone.py -k any_time",
    ),
    Mutant(
        "records/beside_alone.py",
        "if each <= LEVEL and gains[i] < 0)",
        "if gains[i] < 0)",
        "tests/records/test_beside_alone.py -k chance_names",
    ),
    Mutant(
        "runs/compare/twins.py",
        "if run.config.alone or run.config.newcomers:",
        "if False:",
        "tests/runs/test_with_alone.py -k comparison",
    ),
    # clusters
    Mutant(
        "methods/ifca.py",
        'answers: ClassVar[Mapping[str, str]] = {"w": "w*"}',
        "answers: ClassVar[Mapping[str, str]] = {}",
        "tests/methods/test_clusters.py -k flipped",
    ),
    Mutant(
        "methods/ifca.py",
        "one_of(-losses.nan_to_num(nan=torch.inf))",
        "one_of(losses.nan_to_num(nan=torch.inf))",
        "tests/methods/test_clusters.py -k algorithm_1",
    ),
    Mutant(
        "methods/ifca.py",
        'choice = one_of(reply["choice"].params)  #',
        'choice = reply["choice"].params  #',
        "tests/methods/test_clusters.py -k no_choice",
    ),
    Mutant(
        "methods/cfl.py",
        "mean >= self.eps1 * rest or length <= self.eps2 * still",
        "mean >= self.eps1 * rest",
        "tests/methods/test_clusters.py -k one_cluster",
    ),
    Mutant(
        "methods/cfl.py",
        "return half if size[0] < size[1] else ~half",
        "return half",
        "tests/methods/test_clusters.py -k 'cfl_as or absent'",
    ),
    Mutant("methods/cfl.py", "LEAST = 3", "LEAST = 2", "tests/methods/test_clusters.py -k cluster_of_two"),
    Mutant(
        "methods/cfl.py",
        "(float(samples[side].sum()), float(lengths[side].sum()))",
        "float(samples[side].sum())",
        "tests/methods/test_clusters.py -k as_many_samples",
    ),
    Mutant(
        "methods/fedfomo.py",
        "(rate > 0) & rate.isfinite()",
        "rate > 0",
        "tests/methods/test_collaboration_graphs.py -k gain_is_finite",
    ),
    Mutant(
        "methods/personal_parts.py",
        '"fedavg" if self.scored == "received" else "fedavg-ft"',
        '"fedavg"',
        "tests/methods/test_doubts.py -k no_layers",
    ),
    Mutant(
        "training/local.py",
        "min(len(mine) - 2, max(2, round(share * len(mine))))",
        "max(2, round(share * len(mine)))",
        "tests/training/test_passes.py -k left_to_train",
    ),
    Mutant(
        "training/local.py",
        "other.number, other.only = number, only",
        "other.number, other.only = number, only or self.only",
        "tests/training/test_passes.py -k pass_of_a_pass",
    ),
    Mutant(
        "methods/bipartition.py",
        "near.maximum(similarity[order[-1]])",
        "near.minimum(similarity[order[-1]])",
        "tests/methods/test_clusters.py -k best",
    ),
    Mutant(
        "runs/reply_checks.py",
        "for sums in found]).argmin(0, keepdim=True)",
        "for sums in found]).argmax(0, keepdim=True)",
        "tests/methods/test_clusters.py -k nearest",
    ),
    Mutant(
        "runs/compare/twins.py",
        "if changed - ELSEWHERE:",
        "if False:",
        "tests/methods/test_clusters.py -k twins",
    ),
    # privacy's noise in who listens to whom
    Mutant(
        "methods/fedamp.py",
        "distances = (measured - noise).clamp(min=0)",
        "distances = (measured - noise - noise.T).clamp(min=0)",
        "tests/methods/attention/test_private_noise.py -k 'truth or claims'",
    ),
    Mutant(
        "methods/fedamp.py",
        "pairs = (measured - (noise + noise.T) / 2).clamp(min=0)",
        "pairs = (measured - noise).clamp(min=0)",
        "tests/methods/attention/test_private_noise.py -k order",
    ),
    Mutant(
        "methods/attention/bias_variance.py",
        "return signal, level / samples + added,",
        "return signal, level / samples,",
        "tests/methods/attention/test_private_noise.py -k proportion",
    ),
    Mutant(
        "methods/attention/bias_variance.py",
        "private.to(spread).minimum(spread)",
        "private.to(spread)",
        "tests/methods/attention/test_private_noise.py -k hide",
    ),
    Mutant(
        "methods/autoamp.py",
        "answer.where(noise == 0, 0)",
        "answer",
        "tests/methods/test_under_privacy.py -k loss",
    ),
    Mutant(
        "runs/reply_checks.py",
        'FREE_NUMBERS = ("loss", "noise")',
        'FREE_NUMBERS = ("loss",)',
        "tests/federation/test_wire.py -k noise",
    ),
    # AutoAMP
    Mutant(
        "methods/attention/bias_variance.py",
        "heard = ~opposed(a, b, start, 1 - private / 4 / noise)",
        "heard = torch.ones_like(signal, dtype=torch.bool)",
        "tests/methods/test_autoamp.py -k opposed",
    ),
    Mutant(
        "methods/attention/bias_variance.py",
        "near = (far <= FAR).nonzero()[:, 0]",
        "near = (far > -1).nonzero()[:, 0]",
        "tests/methods/test_autoamp.py -k poisoned",
    ),
    Mutant(
        "methods/attention/bias_variance.py",
        "level = torch.where(level > 0, level, 1.0)",
        "level = level",
        "tests/methods/attention/test_bias_variance.py -k equal_models",
    ),
    Mutant(
        "methods/autoamp.py",
        "if len(two) or sharper else state",
        "if len(two) else state",
        "tests/methods/test_autoamp.py -k rules_differ",
    ),
    Mutant(
        "methods/autoamp.py",
        'w = rows["w"].put(where, reply["w"]).put(two, whole)',
        'w = rows["w"].put(where, reply["w"])',
        "tests/methods/test_autoamp.py -k probe_from_one",
    ),
    Mutant(
        "methods/attention/bias_variance.py",
        "heard & ~left.T",
        "heard",
        "tests/methods/attention/test_bias_variance.py -k left",
    ),
    Mutant(
        "methods/attention/misfit.py",
        "for half in (mine, 3 - mine)",
        "for half in (mine, mine)",
        "tests/methods/test_autoamp.py -k second_look",
    ),
    Mutant(
        "methods/attention/misfit.py",
        '((fit["doubted"] > 0) & better)',
        '(fit["doubted"] > 0)',
        "tests/methods/test_autoamp.py -k labels_are_wrong",
    ),
    Mutant(
        "methods/attention/misfit.py",
        "return alone < ALONE * together",
        "return alone < ALONE",
        "tests/methods/test_autoamp.py -k learn_slowly",
    ),
    Mutant(
        "methods/attention/misfit.py",
        "(loss > LEFT * losses[:, :1])",
        "(loss > 0)",
        "tests/methods/attention/test_misfit.py",
    ),
    Mutant(
        "training/local.py",
        "        part.clients, part._known = self.clients.training_on(train), known\n",
        "        part.clients, part._known, part.losses = self.clients.training_on(train), known, {}\n",
        "tests/training/test_local_parts.py -k all_at_once",
    ),
    Mutant(
        "training/local.py",
        "self.config.seed, purpose, self.clients.numbers[i])",
        "self.config.seed, purpose, self.clients.numbers[i], self.k)",
        "tests/training/test_local_parts.py -k same_in_all_rounds",
    ),
    Mutant(
        "training/local.py",
        "(self.k, self.number) if self.number else (self.k,)",
        "(self.k,)",
        "tests/training/test_passes.py -k draws_anew",
    ),
    Mutant(
        "training/local.py",
        "w.copy_(torch.where(self.only.params, w, before))",
        "pass",
        "tests/training/test_passes.py -k only_these",
    ),
    # personal parts
    Mutant(
        "methods/personal_parts.py",
        'reply["w"].put_columns(home, message["w"])',
        'reply["w"]',
        "tests/methods/test_personal_parts.py -k leaves_a_client",
    ),
    Mutant(
        "methods/personal_parts.py",
        'start = message["w"].put_columns(home, state.rows["w"])',
        'start = message["w"]',
        "tests/methods/test_personal_parts.py -k 'in_its_paper and fedbn'",
    ),
    Mutant(
        "methods/personal_parts.py",
        'params = torch.where(trained, rows["start"].params, now.params)',
        "params = now.params",
        "tests/methods/test_personal_parts.py -k never_mix",
    ),
    Mutant(
        "methods/personal_parts.py",
        'params = torch.where(trained, rows["start"].params, now.params)',
        'params = rows["start"].params',
        "tests/methods/test_personal_parts.py -k sent_next",
    ),
    Mutant(
        "methods/personal_parts.py",
        "(home.params.any() or home.buffers.any()) and not home.params.all()",
        "home.params.any() or home.buffers.any()",
        "tests/methods/test_doubts.py -k 'no_sense and fedper'",
    ),
    Mutant(
        "methods/fedper.py",
        "return local.head(self.head)",
        "return local.head(1)",
        "tests/methods/test_personal_parts.py -k 'at_home_is'",
    ),
    Mutant(
        "methods/fedrep.py",
        "local.again(0, epochs=rest, only=~head).run(fitted, descent)",
        "local.again(0, epochs=rest).run(fitted, descent)",
        "tests/methods/test_personal_parts.py -k 'in_its_paper and fedrep'",
    ),
    Mutant(
        "methods/fedrep.py",
        "max(1, local.epochs - first)",
        "local.epochs",
        "tests/methods/test_personal_parts.py -k splits",
    ),
    Mutant(
        "methods/fedbn.py",
        "return local.norm()",
        "return local.head()",
        "tests/methods/test_personal_parts.py -k 'in_its_paper and fedbn'",
    ),
    Mutant(
        "methods/fedala.py",
        ".clamp(0, 1)",
        "",
        "tests/methods/test_personal_parts.py -k 'fedala_as'",
    ),
    Mutant(
        "methods/fedala.py",
        "a = moved if number == 1 else torch.where(first, moved, a)",
        "a = moved",
        "tests/methods/test_personal_parts.py -k each_client_for_itself",
    ),
    Mutant(
        "methods/fedala.py",
        "torch.where(apart, 1, learned)",
        "torch.ones_like(learned)",
        "tests/methods/test_personal_parts.py -k 'fedala_as'",
    ),
    Mutant(
        "cli/run.py",
        "    for each in told:\n        warn(each)\n",
        "",
        "tests/methods/test_doubts.py -k before_the_rounds",
    ),
    # a federation's keys, certificates, logs and kept models
    Mutant(
        "federation/provision/bundle.py",
        "    if private is not None:\n",
        "    private = private or b'PRIVATE KEY'\n    if private is not None:\n",
        "tests/federation/test_own_key.py -k never_leaves",
    ),
    Mutant(
        "federation/silo/own_key.py",
        "if known is not None and silo_keys.key_digest(public) != silo_keys.key_digest(known):",
        "if False:",
        "tests/federation/test_own_key.py -k another_silo",
    ),
    Mutant(
        "federation/certificates.py",
        "if signer.public_key() != authority.public_key():",
        "if False:",
        "tests/federation/test_renew.py -k another_authoritys",
    ),
    Mutant(
        "federation/certificates.py",
        "end if latest is None else min(end, latest)",
        "end",
        "tests/federation/test_renew.py -k outlive",
    ),
    Mutant(
        "federation/server/resume.py",
        '"standings": {now(who): values',
        '"standings": {who: values',
        "tests/federation/test_renew.py -k old_row",
    ),
    Mutant(
        "federation/processes/logs.py",
        "if i in found and place.is_in(found[i])",
        "if i in found",
        "tests/federation/test_rotation.py -k each_line_once",
    ),
    Mutant(
        "federation/processes/logs.py",
        "return dict(reversed(found.items()))",
        "return dict(found.items())",
        "tests/federation/test_rotation.py -k each_line_once",
    ),
    Mutant(
        "federation/processes/rotation.py",
        "and _is(file, path):",
        "and True:",
        "tests/federation/test_rotation.py -k moved_away",
    ),
    Mutant(
        "federation/silo/kept_models.py",
        "if one is None or one == before:",
        "if one is None:",
        "tests/federation/test_silo_models.py -k rewritten",
    ),
    Mutant(
        "federation/silo/kept_models.py",
        '    (folder / f"{BEST}.json").unlink(missing_ok=True)\n',
        "",
        "tests/federation/test_silo_models.py -k anothers_scores",
    ),
    Mutant(
        "federation/silo/round.py",
        "self._keep_best(k + 1, received)",
        "self._keep_best(k, received)",
        "tests/federation/test_silo_models.py -k own_validation",
    ),
    Mutant(
        "federation/silo/ledger.py",
        "            self.check()\n            write_json",
        "            write_json",
        "tests/federation/test_ledger.py -k two_at_once",
    ),
    Mutant(
        "federation/silo/app.py",
        "        house.ledger.count()  # before anything leaves the silo\n",
        "        pass\n",
        "tests/federation/test_ledger.py -k restart",
    ),
    # live pages
    Mutant(
        "federation/watch/serving.py",
        "if len(given) != 1 or given[0] not in hosts:",
        "if len(given) != 1:",
        "tests/federation/test_watch_serving.py -k another_name",
    ),
    Mutant(
        "federation/watch/serving.py",
        "if len(given) != 1 or given[0] not in hosts:",
        "if not given or given[0] not in hosts:",
        "tests/federation/test_watch_serving.py -k another_name",
    ),
    Mutant(
        "federation/watch/serving.py",
        "if slash and _same(secret, self.secret):",
        "if slash and secret.startswith(self.secret[:8]):",
        "tests/federation/test_watch_serving.py -k every_other_path",
    ),
    Mutant(
        "federation/watch/serving.py",
        "and self.token is not None:",
        "and True:",
        "tests/federation/test_watch_serving.py -k has_the_token",
    ),
    Mutant(
        "federation/watch/serving.py",
        "return not from_elsewhere or",
        "return True or",
        "tests/federation/test_watch_serving.py -k another_page",
    ),
    Mutant(
        "federation/watch/serving.py",
        "self._answer(405 if code == 501 else code)",
        "super().send_error(code)",
        "tests/federation/test_watch_serving.py -k only_get",
    ),
    Mutant(
        "federation/watch/page.py",
        "if found != known:",
        "if known is None:",
        "tests/federation/test_watch_pages.py -k have_changed",
    ),
    Mutant(
        "federation/silo/diary.py",
        'if each["round"] < line["round"]]',
        'if each["round"] != line["round"]]',
        "tests/federation/test_diary.py -k in_order",
    ),
    Mutant(
        "federation/silo/live.py",
        'shift = 1 if entry == "received" else 0',
        "shift = 0",
        "tests/federation/test_watch_pages.py -k what_is_its_own",
    ),
    Mutant(
        "federation/server/state.py",
        "reason, standing.refused + 1",
        "reason, standing.refused",
        "tests/federation/test_watch_pages.py -k status_as_json",
    ),
    # statistics
    Mutant(
        "report/stats.py",
        "DIGITS = 9",
        "DIGITS = 16",
        "tests/trust/test_statistics.py",
    ),
    # the server's door, and what goes through it
    Mutant(
        "federation/server/fleet.py",
        'if scope["type"] == "http" and (scope["method"], scope["path"]) not in LET_THROUGH:',
        "if False:",
        "tests/federation/test_server_door.py -k only_the_calls",
    ),
    Mutant(
        "federation/server/fleet.py",
        "        Middleware(NodeAuthMiddleware),\n",
        "",
        "tests/federation/test_server_door.py -k only_the_calls",
    ),
    Mutant(
        "federation/server/link.py",
        "if session_id not in self._object_push_sessions or size > self.most:",
        "if session_id not in self._object_push_sessions:",
        "tests/federation/test_server_door.py -k too_many_bytes",
    ),
    Mutant(
        "federation/wire/objects.py",
        'total += sum(len(chunks[index]) for index in json.loads(get_object_body(piece, Array))["arraychunk_ids"])',
        "total += sum(len(chunk) for chunk in chunks)",
        "tests/federation/test_server_door.py -k before_it_is_put_together",
    ),
    Mutant(
        "federation/server/grid.py",
        "if stored is None or not stored.metadata.delivered_at:",
        "if stored is None:",
        "tests/federation/test_server_door.py -k nobody_fetched",
    ),
    Mutant(
        "federation/server/lateness.py",
        "own = self.usual.get(node, math.inf)",
        "own = self.usual.get(node, 0.0)",
        "tests/federation/test_lateness.py -k once",
    ),
    Mutant(
        "federation/server/lateness.py",
        "self.usual.setdefault(node, 0.0)",
        "self.usual[node] = 0.0",
        "tests/federation/test_lateness.py -k three_times",
    ),
    # what is held out, and data that changes
    Mutant(
        "data/clients.py",
        "if self.digests is not None and share < 1:",
        "if False:",
        "tests/data/test_lots.py -k come_and_go",
    ),
    Mutant("data/lots.py", "held = u == u.min()", "pass", "tests/data/test_lots.py -k each_side"),
    Mutant("data/silos/row_digests.py", "+ 0.0", "", "tests/data/test_lots.py -k however_it_is_stored"),
    Mutant(
        "training/local.py",
        "if self.clients.digests is None:",
        "if True:",
        "tests/data/test_lots.py -k halves_are_made",
    ),
    Mutant(
        "federation/silo/known_rows.py",
        'np.union1d(known["trained"], train)',
        "np.unique(train)",
        "tests/federation/test_changed_data.py -k was_away",
    ),
    Mutant(
        "federation/server/data_changes.py",
        "if changed != standing.data_changed:",
        "if True:",
        "tests/federation/test_changed_data.py -k both_sides",
    ),
    # missing cells
    Mutant(
        "data/silos/schema/apply.py",
        "np.where(np.isnan(scaled), 0, scaled)",
        "np.where(np.isnan(scaled), 1, scaled)",
        "tests/data/test_missing.py -k by_hand",
    ),
    Mutant(
        "data/silos/schema/merge.py",
        "*(b.known(column), ",
        "*(b.count, ",
        "tests/data/test_missing.py -k merging_gives",
    ),
    Mutant(
        "data/silos/schema/definition.py",
        "column: max(zip(",
        "column: min(zip(",
        "tests/data/test_missing.py -k most_frequent",
    ),
    Mutant(
        "data/silos/row_digests.py",
        "block[np.isnan(block)] = np.nan",
        "pass",
        "tests/data/test_missing.py -k depend_neither",
    ),
    Mutant(
        "runs/material.py",
        "silos = [with_kinds_of(schema, silo) for silo in silos]",
        "silos = list(silos)",
        "tests/data/test_missing.py -k stays_on_its_side",
    ),
    Mutant(
        "data/silos/leaving.py",
        "if 0 < known < min_count <= rows",
        "if False",
        "tests/data/test_missing.py -k few_known",
    ),
    # newcomers, seeds, files of tensors
    Mutant(
        "runs/newcomers/newcomer.py",
        "p=difference_p(result.summary.metric, *errors)",
        "p=None",
        "tests/runs/test_joining.py -k without_a_score",
    ),
    Mutant(
        "runs/given.py",
        "samples(asked.seed)",
        "samples(0)",
        "tests/comparison/test_compare_from_python.py -k seeds_hold_out",
    ),
    Mutant(
        "records/tensor_file.py",
        "(-tensors[name].element_size(), name)",
        "name",
        "tests/records/test_tensor_file.py -k several_kinds",
    ),
    # how tables are read
    Mutant(
        "data/silos/files/arrow_csv.py",
        "return bool(before.all() and after.all())",
        "return True",
        "tests/data/test_bad_tables.py -k 'after and quote'",
    ),
    Mutant(
        "data/silos/files/arrow_columns.py",
        "return values if finite == len(values) - numbers.null_count else None",
        "return values",
        "tests/data/test_arrow_csv.py -k both_readers",
    ),
    Mutant(
        "data/silos/files/arrow_csv.py",
        '(not content.endswith(b"\\n")) == rows + 1',
        "1 >= rows",
        "tests/data/test_arrow_csv.py -k both_readers",
    ),
    Mutant(
        "data/silos/files/columns.py",
        "if not known and perhaps:",
        "if False:",
        "tests/data/test_bad_tables.py -k dashes",
    ),
    Mutant(
        "data/silos/files/decimals.py",
        "settled = comma if",
        "settled = True if",
        "tests/data/test_bad_tables.py -k either",
    ),
    Mutant(
        "data/silos/files/content.py",
        "return content if not content.isascii() and _is_utf8(content) else",
        "return",
        "tests/data/test_table_files.py -k encodings",
    ),
    # collaboration graphs
    Mutant(
        "methods/pfedgraph.py",
        "wanted = shares + alike / (2 * alpha)",
        "wanted = shares + alike / alpha",
        "tests/methods/test_collaboration_graphs.py -k solve_its_program",
    ),
    Mutant(
        "methods/pfedgraph.py",
        "-strength / length, across)",
        "strength / length, across)",
        "tests/methods/test_collaboration_graphs.py -k autograds",
    ),
    Mutant(
        "methods/pfedgraph.py",
        "self.lam if known.any() else 0.0",
        "self.lam",
        "tests/methods/test_collaboration_graphs.py -k second_round",
    ),
    Mutant(
        "methods/attention/weights.py",
        "last = (ordered > over).sum(1, keepdim=True) - 1",
        "last = (ordered > over).sum(1, keepdim=True) * 0",
        "tests/methods/test_collaboration_graphs.py -k simplex",
    ),
    Mutant(
        "methods/fedfomo.py",
        "trained = rest.run(",
        "trained = local.run(",
        "tests/methods/test_collaboration_graphs.py -k among_equals",
    ),
    Mutant(
        "methods/fedfomo.py",
        'for key in (-state.pairs["affinity"], state.pairs["sent"] > 0, nobody)',
        'for key in (-state.pairs["affinity"], nobody)',
        "tests/methods/test_collaboration_graphs.py -k everyone_is_tried",
    ),
    Mutant(
        "methods/fedfomo.py",
        '(state.rows["played"].params.T == 0)',
        '(state.rows["played"].params.T < 0)',
        "tests/methods/test_collaboration_graphs.py -k first_round",
    ),
    Mutant(
        "federation/plan.py",
        "if self.hands_out_models and not self.config.share_models:",
        "if False:",
        "tests/federation/test_sharing.py -k 'server or silo'",
    ),
    Mutant(
        "federation/silo/checkup.py",
        "if sharing := silo_config.plan.sharing():",
        "if sharing := '':",
        "tests/federation/test_sharing.py -k operator_reads",
    ),
    # what leaves with a schema
    Mutant(
        "data/silos/leaving.py",
        "if found := faults(silos, asked, min_count, keep):",
        "if found := []:",
        "tests/data/test_leaving.py -k names_does_not",
    ),
    Mutant(
        "data/silos/schema/make.py",
        "if n < min_count}",
        "if n < 1}",
        "tests/data/test_leaving.py -k rare_is_not_in",
    ),
    Mutant(
        "cli/method_words.py",
        "each for each in everyone if each.group == group",
        "each for each in everyone",
        "tests/cli/test_list_methods.py -k group",
    ),
    Mutant(
        "cli/method_words.py",
        "for each in kind.__mro__:",
        "for each in kind.__mro__[:1]:",
        "tests/cli/test_list_methods.py -k form",
    ),
    Mutant(
        "cli/data.py",
        "if not sys.stdin.isatty():",
        "if False:",
        "tests/data/test_leaving.py -k without_a_terminal",
    ),
    # personal models beside, near or after a common one
    Mutant(
        "methods/ditto.py",
        "proximal, anchor=w, strength=strength)",
        'proximal, anchor=reply["w"].params, strength=strength)',
        "tests/methods/test_personal_models.py -k ditto",
    ),
    Mutant(
        "methods/ditto.py",
        "local.again(0, epochs=self.personal_epochs)",
        "local.again(1, epochs=self.personal_epochs)",
        "tests/methods/test_personal_models.py -k 'ditto and separate'",
    ),
    Mutant(
        "methods/ditto.py",
        'personal.run(state.rows["v"],',
        'personal.run(message["w"],',
        "tests/methods/test_personal_models.py -k 'ditto and algorithm'",
    ),
    Mutant(
        "methods/mr_mtl.py",
        'local.run(state.rows["w"],',
        'local.run(message["u"],',
        "tests/methods/test_personal_models.py -k mr_mtl",
    ),
    Mutant(
        "methods/mr_mtl.py",
        'state.rows["w"].put(present, reply["w"])',
        'reply["w"].mean().repeat(len(present))',
        "tests/methods/test_personal_models.py -k mr_mtl",
    ),
    Mutant(
        "methods/pfedme.py",
        'w, start = rows["w"], rows["v"]',
        'w, start = rows["w"], rows["w"]',
        "tests/methods/test_personal_models.py -k 'pfedme and algorithm'",
    ),
    Mutant(
        "methods/pfedme.py",
        "w + self.beta * (mean.params - w)",
        "mean.params",
        "tests/methods/test_personal_models.py -k 'pfedme and algorithm'",
    ),
    Mutant(
        "methods/pfedme.py",
        "Rows(w.params, theta.buffers)",
        "w",
        "tests/methods/test_personal_models.py -k 'pfedme and batchnorms'",
    ),
    Mutant(
        "methods/per_fedavg.py",
        "(ahead - behind)",
        "ahead",
        "tests/methods/test_personal_models.py -k hessian",
    ),
    Mutant(
        "methods/per_fedavg.py",
        "return grad(adapted, part=(2, parts))",
        "return grad(adapted, part=(1, parts))",
        "tests/methods/test_personal_models.py -k 'per_fedavg and algorithm'",
    ),
    Mutant(
        "methods/per_fedavg.py",
        'optimizer="sgd", lr=self.alpha',
        "lr=self.alpha",
        "tests/methods/test_personal_models.py -k plain_sgd",
    ),
    Mutant(
        "methods/per_fedavg.py",
        'reply["w"].mean()',
        'reply["w"][:1]',
        "tests/methods/test_personal_models.py -k 'per_fedavg and algorithm'",
    ),
    # what protects single samples
    Mutant(
        "training/private/sample_gradients.py",
        ".where(present & finite, 0)",
        ".where(present, 0)",
        "tests/training/test_privacy.py -k no_more_than_the_clip",
    ),
    Mutant(
        "training/private/sample_gradients.py",
        "(clip / lengths.clamp(min=clip))",
        "(clip / lengths)",
        "tests/training/test_privacy.py -k sum_of_clipped",
    ),
    Mutant(
        "training/private/sample_gradients.py",
        "at = params.clone().requires_grad_()",
        "at = params.detach().requires_grad_()",
        "tests/training/test_privacy.py -k forgotten",
    ),
    Mutant(
        "training/private/walk.py",
        "return size, self.z[i] * self.clip / size",
        "return size, self.z[i] / size",
        "tests/training/test_privacy.py -k its_variance",
    ),
    Mutant(
        "training/private/walk.py",
        "most = sampling.most_gradients(parts)",
        "most = 1",
        "tests/training/test_privacy.py -k spent",
    ),
    Mutant(
        "training/private/streams.py",
        'return seeds.generator(self.seed, "private batches", client, *self.when)',
        'return seeds.generator(0, "private batches", client, *self.when)',
        "tests/training/test_privacy.py -k secret_changes",
    ),
    Mutant(
        "training/private/noise.py",
        'seeds.generator(seed, "private noise", *coordinates)',
        'seeds.generator(seed, "private noise", *coordinates[:2])',
        "tests/training/test_privacy.py -k its_variance",
    ),
    Mutant(
        "training/private/losses.py",
        ".nan_to_num(most, most, most).clamp(0, most)",
        ".nan_to_num(most, most, most)",
        "tests/training/test_privacy_of_losses.py -k loss",
    ),
    Mutant(
        "training/private/minibatches.py",
        "((self.places * p).floor() == i - 1)",
        "((self.places * p).floor() <= i - 1)",
        "tests/training/test_privacy.py -k make_up_all_of_it",
    ),
    Mutant(
        "training/local.py",
        'parts.below(self.clients, i, share, self.config.seed, "held out")',
        'parts.below(self.clients, i, known[i] / size, self.config.seed, "held out")',
        "tests/training/test_privacy.py -k other_samples_part",
    ),
    Mutant(
        "privacy/sampling.py",
        "<= j * p < i * q for",
        "<= j * p <= i * q for",
        "tests/privacy/test_sampling.py -k worst_place",
    ),
    # what privacy was promised, and what was spent of it
    Mutant(
        "privacy/account.py",
        "return math.inf if steps else 0.0",
        "return 0.0",
        "tests/privacy/test_account.py -k edges",
    ),
    Mutant(
        "privacy/account.py",
        "if (now := spends(z)) <= most:",
        "if (now := spends(z)) <= most * 1.01:",
        "tests/privacy/test_account.py -k spends_no_more",
    ),
    Mutant("privacy/account.py", "FINE = 20", "FINE = 2", "tests/privacy/test_account.py -k gaussian_mechanism"),
    Mutant("privacy/rehearsal.py", "0.1 * step", "0 * step", "tests/privacy/test_rehearsal.py -k 'by_hand and fedala'"),
    Mutant(
        "privacy/rehearsal.py",
        "here.protects = False",
        "here.protects = True",
        "tests/privacy/test_rehearsal.py -k at_home",
    ),
    Mutant(
        "runs/spending.py",
        "tuple(mine + more for",
        "tuple(more for",
        "tests/runs/test_private_runs.py -k counted_from_what_was_done",
    ),
    Mutant(
        "runs/spending.py",
        "tuple(spent_in(lines, num_clients))",
        "tuple(spent_in([], num_clients))",
        "tests/runs/test_private_runs.py -k counts_on",
    ),
    Mutant(
        "runs/scoring.py",
        "return SCORED if config.private else CHOSEN if config.then_alone else method.takes_home",
        "return method.takes_home",
        "tests/runs/test_private_runs.py -k choose_nothing",
    ),
    # where rows are kept
    Mutant(
        "row_store.py",
        "torch.index_select(rows, 0, index[part], out=staged)",
        "staged.copy_(rows[part])",
        "tests/test_row_store.py -k in_pieces",
    ),
    Mutant(
        "row_store.py",
        "                os.posix_fallocate(file.fileno(), 0, size)",
        "                file.truncate(size)",
        "tests/test_row_store.py -k no_room",
    ),
    Mutant(
        "row_store.py",
        "        return rows[:1].to(device).expand(count, -1)",
        "        return rows[:1].expand(count, -1).contiguous().to(device)",
        "tests/test_row_store.py -k moved_once",
    ),
    Mutant(
        "rows.py",
        "if rows.like(self) and is_everyone(index, len(self)):",
        "if rows.like(self):",
        "tests/test_rows.py -k not_copied",
    ),
    Mutant(
        "rows.py",
        "rooms = [Room(there) for _ in stacks]",
        "rooms = [Room(stack.device) for stack in stacks]",
        "tests/test_row_store.py -k computed_on_the_device",
    ),
    Mutant(
        "runs/client_half.py",
        "key=lambda i: -sizes[i]",
        "key=lambda i: sizes[i]",
        "tests/runs/test_rows_elsewhere.py -k 'bit_for_bit and fedamp'",
    ),
    Mutant(
        "runs/client_half.py",
        "stack = self.stacks[name] = self._new(rows, stack)",
        "pass",
        "tests/runs/test_rows_elsewhere.py -k until_they_differ",
    ),
    Mutant(
        "runs/client_half.py",
        "everyone.spent[place] = spent",
        "everyone.spent[place] += spent + spent",
        "tests/runs/test_rows_elsewhere.py -k leaves_no_trace",
    ),
    Mutant(
        "runs/loop.py",
        "                del played  # and the messages of this round with it: the next round makes its own\n",
        "",
        "tests/runs/test_rows_elsewhere.py -k stacks_are_there",
    ),
    Mutant(
        "runs/memory/placing.py",
        "if room is None or kept <= ROOM * room:",
        "if room is None or kept <= room:",
        "tests/runs/test_rows_elsewhere.py -k has_room",
    ),
    Mutant(
        "training/evaluate.py",
        "outputs(trainer, rows[models].to(x.device), x",
        "outputs(trainer, rows[models], x",
        "tests/runs/test_rows_elsewhere.py -k were_moved",
    ),
    Mutant(
        "config/run_config.py",
        'NO_MATTER = ("rows",)',
        "NO_MATTER = ()",
        "tests/runs/test_rows_elsewhere.py -k goes_on",
    ),
    # several processes
    Mutant(
        "ranks/blocks.py",
        "[1] * self.team.size).sum(0)",
        "[1] * self.team.size)[0]",
        "tests/ranks/test_blocks.py -k products",
    ),
    Mutant(
        "ranks/team.py",
        "raise SharedError(str(mistake)) if len(set(found)) == 1 else mistake",
        "raise mistake",
        "tests/runs/distributed/test_ends.py -k told_once",
    ),
    Mutant(
        "training/stacked/graphs.py",
        "if key in self._settled and len(self._settled[key]) < len(which):",
        "if key in self._settled and len(self._settled[key]) != len(which):",
        "tests/training/stacked/test_settled.py",
    ),
    Mutant(
        "ranks/team.py",
        "packed((purpose, self.interrupted, mine))",
        "pickle.dumps((purpose, self.interrupted, mine))",
        "tests/ranks/test_told.py",
    ),
    Mutant(
        "methods/attention/inner_products.py",
        "addmm_(one[:, width:], other[:, width:].T)",
        "addmm_(one[:, :width], other[:, :width].T)",
        "tests/methods/attention/test_inner_products.py",
    ),
    Mutant(
        "ranks/team.py",
        "src=rank)",
        "src=0)",
        "tests/runs/distributed/test_same_numbers.py -k bit_for_bit",
    ),
    Mutant(
        "runs/shard.py",
        "(who >= self.mine.start) & (who < self.mine.stop)",
        "(who >= self.mine.start)",
        "tests/runs/distributed/test_same_numbers.py -k bit_for_bit",
    ),
    Mutant(
        "runs/standing.py",
        "setup.shard.state(checkpoint.clients)",
        "checkpoint.clients",
        "tests/runs/distributed/test_same_numbers.py -k goes_on",
    ),
    Mutant(
        "runs/standing.py",
        "setup.shard.all_state(self.clients)",
        "self.clients",
        "tests/runs/distributed/test_same_numbers.py -k goes_on",
    ),
    Mutant(
        "runs/round.py",
        "sound[shard.here(who)]",
        "sound",
        "tests/runs/distributed/test_same_numbers.py -k whatever",
    ),
    # recorded passes
    Mutant(
        "training/stacked/graphs.py",
        "for value in inputs), *where)",
        "for value in inputs))",
        "tests/training/stacked/test_recorded_in_memory.py -k fedamp",
    ),
    Mutant(
        "training/stacked/graphs.py",
        "key = name, *rows.shape[1:], rows.dtype, rows.device",
        "key = *rows.shape[1:], rows.dtype, rows.device",
        "tests/training/stacked/test_recorded_in_memory.py -k apfl",
    ),
    # what belongs to one process, one silo, one round
    Mutant(
        "records/folder.py",
        "if not free:",
        "if False:",
        "tests/runs/test_alone_in_a_folder.py -k second_process",
    ),
    Mutant(
        "records/reading.py",
        'if line["round"] != before["round"] + 1:',
        "if False:",
        "tests/runs/test_alone_in_a_folder.py -k mixed",
    ),
    Mutant(
        "federation/silo/round.py",
        "if silo.samples < MIN_COUNT:",
        "if False:",
        "tests/federation/test_changed_data.py -k hardly_any",
    ),
    Mutant(
        "runs/newcomers/newcomer.py",
        "made + 1 if later else made",
        "made",
        "tests/runs/test_newcomers.py -k behind",
    ),
    Mutant(
        "runs/then_alone.py",
        "THEN_ALONE: Separate().client_init(at.best[CHOSEN].models)",
        "THEN_ALONE: Separate().client_init(at.best[setup.method.scored].models)",
        "tests/runs/test_then_alone.py -k 'by_hand'",
    ),
    Mutant(
        "runs/then_alone.py",
        "range(at.k + 1, at.k + config.then_alone + 1)",
        "range(at.k, at.k + config.then_alone)",
        "tests/runs/test_then_alone.py -k 'by_hand'",
    ),
    Mutant(
        "runs/then_alone.py",
        "taken = end.round - at.k if",
        "taken = end.round if",
        "tests/runs/test_then_alone.py -k 'by_hand'",
    ),
    Mutant(
        "runs/conclusion.py",
        "at.k == config.rounds and (further is not None or not config.then_alone)",
        "at.k == config.rounds",
        "tests/runs/test_then_alone.py -k 'ended_early or prevents'",
    ),
    Mutant(
        "runs/then_alone.py",
        "best = better(config, setup, best, {ALONE: models[ALONE]}, k)",
        "pass",
        "tests/runs/test_then_alone.py -k equally_long",
    ),
    Mutant(
        "runs/conclusion.py",
        "finished, stopped = False, stop",
        "stopped = stop",
        "tests/runs/test_then_alone.py -k ctrl_c",
    ),
    Mutant(
        "runs/scoring.py",
        "SCORED if config.private else CHOSEN if config.then_alone else method.takes_home",
        "SCORED if config.private else method.takes_home",
        "tests/runs/test_then_alone.py -k exported",
    ),
    Mutant(
        "config/run_config.py",
        "if self.then_alone and not self.validation:",
        "if False:",
        "tests/runs/test_then_alone.py -k mistakes",
    ),
    Mutant(
        "runs/memory/needs.py",
        "trained * config.all_rounds * sum(",
        "trained * config.rounds * sum(",
        "tests/runs/test_then_alone.py -k counted",
    ),
)


NO_TEST = 5
"""What pytest ends with where it ran no test: all were skipped, for want of a package, say."""


def noticed(mutant: Mutant) -> bool | None:
    """Return whether the tests fail with the fault in place; None if none of them can be run here."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)
        path = copy / "fedamp" / mutant.file
        text = path.read_text()
        assert text.count(mutant.before) == 1, f"{mutant.file} has {mutant.before!r} {text.count(mutant.before)} times"
        path.write_text(text.replace(mutant.before, mutant.after))
        command = f"{sys.executable} -m pytest -q -x -p no:cacheprovider -m 'not slow' {mutant.tests}"
        done = subprocess.run(
            command,
            shell=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            timeout=600,
        )
        if done.returncode == NO_TEST and " skipped" in done.stdout:
            return None
        if done.returncode not in (0, 1):  # no test was found, or none could be collected
            raise SystemExit(f"{command}\n{done.stdout[-2000:]}")
        return done.returncode == 1


def main() -> None:
    """Put every fault in, and say which were not noticed."""
    word = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = 0
    for mutant in (mutant for mutant in MUTANTS if word in mutant.file):
        seen = noticed(mutant)
        missed += seen is False
        word_of = {True: "noticed", False: "MISSED ", None: "skipped"}[seen]
        print(f"{word_of}  {mutant.file}: {mutant.after.strip() or '(left out)'}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
