// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// How fast are collectives? Bandwidth by message, against the link.

// transfers returns a table of messages of one profile, or of a job, whose runs are known on several ranks.
function transfers(rows, key, job, more) {
  if (!rows.length) return null;
  const several = rows.some((t) => t.device) && new Set(rows.map((t) => t.device)).size > 1;
  const of = job ? "of the mean run, each as long as its shortest rank: the last to arrive does not wait" : "of the shortest run; longer ones waited for another rank. If all of them waited, the bandwidth is higher";
  return table(`Bandwidth by message and process group, ${of}`, [
    {title: "collective", left: true, of: (t) => t.collective, cell: (t) => named(t.collective)}, ...(several ? [{title: "device", left: true, of: (t) => t.device}] : []),
    {title: "size", help: "by the convention of nccl-tests: the send buffer of a rank, or the whole of a gather", of: (t) => t.bytes, cell: (t) => or(t.bytes, (v) => scaled(v, "B"))},
    {title: "type", left: true, of: (t) => t.element_type || ""}, {title: "group", left: true, of: (t) => t.members || "", cell: (t) => el("bdi", {class: "name", title: [t.group, t.id].filter(Boolean).join(": ")}, short(t.members || "", 32))},
    {title: "ranks", of: (t) => t.ranks}, ...(job ? [{title: "recorded", help: "ranks whose profiles have the message: if the last to arrive is not among them, a run includes the wait for it", of: (t) => t.recorded, cell: (t) => `${t.recorded} of ${t.ranks || "?"}`}] : []),
    {title: "count", of: (t) => t.count, cell: (t) => count(t.count)}, {title: job ? "time" : "time with waiting", of: (t) => t.time_ns, cell: (t) => nanos(t.time_ns)},
    {title: "shortest", of: (t) => t.shortest_ns, cell: (t) => or(t.shortest_ns, nanos)},
    {title: "algorithm", help: "algorithm bandwidth: size ÷ time", of: (t) => t.bytes_per_second, cell: (t) => or(t.bytes_per_second, (v) => scaled(v, "B/s"))},
    {title: "bus", help: "bus bandwidth as in nccl-tests: algorithm bandwidth × 2(n−1)/n of an all_reduce, (n−1)/n of gathers, scatters and all_to_all, 1 of others", of: (t) => t.bus_bytes_per_second, cell: (t) => or(t.bus_bytes_per_second, (v) => scaled(v, "B/s"))},
    {title: "of link", help: "bus bandwidth ÷ one direction of the link by the data sheet of the device, if consecutive ranks share a host; not known for groups that reach beyond one", of: (t) => t.link_share, cell: (t) => or(t.link_share, percent)},
    {title: "link", left: true, of: (t) => t.link || "", cell: (t) => (t.link ? `${t.link}, ${scaled(t.link_bytes_per_second, "B/s")}` : "")},
  ], rows, {key, sort: [job ? "time" : "time with waiting", true], filter: (t) => `${t.collective} ${t.members || ""} ${t.element_type || ""}`, most: 15, more});
}

function bandwidth() {
  const list = everyDevice(), jobs = (state.jobs || []).map((j, i) => transfers(j.transfers || [], "transfers of job " + i, true, j.moreTransfers || 0));
  const alone = transfers(list.flatMap(({d, name}) => (d.transfers || []).map((t) => ({...t, device: name}))), "transfers", false, list.reduce((t, {d}) => t + (d.moreTransfers || 0), 0));
  const out = [...jobs, alone].filter(Boolean);
  return out.length ? out : null;
}
