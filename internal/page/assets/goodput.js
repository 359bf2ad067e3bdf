// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// Where did the GPU hours of each job go? The account of the connector gpu_goodput.

const jobBuckets = [["productive", "k0"], ["busy", "k5"], ["lost", "k4"], ["hang", "i5"], ["rank_wait", "k3"], ["data", "k1"], ["checkpoint", "k2"], ["evaluation", "k6"], ["compilation", "i8"], ["startup", "i3"], ["idle", "i9"], ["unknown", "hatch0"]];
const bucketHelp = {productive: "steps that no restart repeated", busy: "kernels ran, and no span says for what", lost: "steps that a restart repeated", hang: "nothing ended for long", rank_wait: "steps that waited for the slowest rank", data: "steps that waited for data", idle: "between two processes, or no kernel ran and no span says why", unknown: "no span says, and nothing is known of the device"};

function goodput(view) {
  const list = (state.goodput || []).map((j) => ({...j, total: Object.values(j.seconds).reduce((t, v) => t + v, 0)}));
  if (!list.length) return null;
  const title = (b) => b.replace("_", " "), used = jobBuckets.filter(([b]) => list.some((j) => j.seconds[b] > 0));
  return [
    stripes(view, "GPU time of jobs by bucket", list.map((j) => ({name: j.job, total: j.total, parts: used.map(([b, cls]) => [title(b), j.seconds[b] || 0, cls, seconds(j.seconds[b] || 0)])}))),
    legend(used.map(([b, cls]) => [title(b), cls])),
    table("Time of all GPUs of a job since it began, over its restarts", [
      {title: "job", left: true, of: (j) => j.job, cell: (j) => named(j.job)}, {title: "GPU time", help: "wall time × GPUs", of: (j) => j.total, cell: (j) => seconds(j.total)},
      {title: "goodput", help: "productive ÷ GPU time; only the spans of steps can show it", zero: true, of: (j) => (j.seconds.productive === undefined ? undefined : j.seconds.productive / j.total), cell: (j) => (j.seconds.productive === undefined ? "" : percent(j.seconds.productive / j.total))},
      ...used.map(([b]) => ({title: title(b), help: bucketHelp[b], of: (j) => j.seconds[b], cell: (j) => (j.seconds[b] === undefined ? "" : seconds(j.seconds[b]))})),
      {title: "restarts", of: (j) => j.restarts, cell: (j) => (j.restarts === undefined ? "" : count(j.restarts))},
    ], list, {key: "goodput", sort: ["GPU time", true], filter: (j) => j.job, most: 15}),
  ];
}
