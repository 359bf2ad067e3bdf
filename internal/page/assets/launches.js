// Copyright The otelgpu Authors · SPDX-License-Identifier: Apache-2.0
// How kernels were launched: columns of the table of kernels.

const launchColumns = [
  {title: "occupancy", help: "Warps on the multiprocessors ÷ the most that they hold: estimated from the launch (registers, shared memory, block and grid), not measured. Mean over the launches, weighted by time.", of: (r) => r.occupancy, cell: (r) => or(r.occupancy, percent)},
  {title: "limited by", help: "What keeps the occupancy from being higher: threads or blocks (no more fit on a multiprocessor), registers, shared memory (of AMD: LDS), or the grid, which has too few blocks. Of most of the time.", of: (r) => r.limited_by, cell: (r) => r.limited_by},
  {title: "waves", help: "Blocks of the grid ÷ (multiprocessors × blocks that one holds at a time), calculated from the launch and the device. Below 1 the kernel leaves part of the device empty. Mean over the launches, weighted by time.", of: (r) => r.waves, cell: (r) => or(r.waves, sig)},
  {title: "blocks/SM", help: "Blocks of the grid ÷ multiprocessors. Mean over the launches, weighted by time.", of: (r) => r.blocks_per_sm, cell: (r) => or(r.blocks_per_sm, sig)},
  {title: "regs", help: "Registers per thread, the most of any launch.", of: (r) => r.registers, cell: (r) => or(r.registers, String)},
];
