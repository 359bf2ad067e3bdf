// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml/nvmltest"
)

// TestFieldsAgainstDCGMsHeader compares the table of fields with dcgm_fields.h: number, name, and
// the words of the header's comment that state the unit or meaning. raw and want are the same value
// in the header's unit and in base units.
func TestFieldsAgainstDCGMsHeader(t *testing.T) {
	header := dcgmHeader(t)
	rows := []struct {
		id        uint16
		name      string // in the header
		words     string // in its comment
		quantity  gpuquantity.Quantity
		raw, want float64
	}{
		{100, "DCGM_FI_DEV_SM_CLOCK", "SM clock", gpuquantity.ClockSM, 1980, 1.98e9}, // MHz, as nvmlDeviceGetClockInfo
		{101, "DCGM_FI_DEV_MEM_CLOCK", "Memory clock", gpuquantity.ClockMemory, 2619, 2.619e9},
		{102, "DCGM_FI_DEV_VIDEO_CLOCK", "Video encoder/decoder clock", gpuquantity.ClockVideo, 1545, 1.545e9},
		{112, "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "bitmask of DCGM_CLOCKS_EVENT_REASON_", gpuquantity.Throttle, 0x4, 0x4},
		{140, "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "Memory temperature", gpuquantity.MemoryTemperature, 78, 78},
		{150, "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "in degrees C", gpuquantity.Temperature, 71, 71},
		{155, "DCGM_FI_DEV_BOARD_POWER_WATTS", "in Watts", gpuquantity.Power, 612.5, 612.5},
		{156, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "in mJ", gpuquantity.Energy, 612500, 612.5},
		{
			157, "DCGM_FI_DEV_BOARD_POWER_RAW_WATTS", "instantaneous power usage of the device in Watts", gpuquantity.Power, 612.5,
			612.5,
		},
		{164, "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS", "Effective power limit", gpuquantity.PowerLimit, 700, 700},
		{191, "DCGM_FI_DEV_FAN_SPEED", "in percent 0-100", gpuquantity.FanSpeed, 30, 0.3},
		{202, "DCGM_FI_DEV_PCIE_REPLAY_TOTAL", "PCIe replay counter", gpuquantity.PCIeReplays, 7, 7},
		// percent, as nvmlUtilization_t
		{203, "DCGM_FI_DEV_GPU_UTIL_RATIO", "GPU Utilization", gpuquantity.Utilization, 97, 0.97},
		{204, "DCGM_FI_DEV_MEM_COPY_UTIL", "Memory Utilization", gpuquantity.MemoryActivity, 30, 0.3},
		{206, "DCGM_FI_DEV_ENC_UTIL", "Encoder Utilization", gpuquantity.EncoderUtilization, 50, 0.5},
		{207, "DCGM_FI_DEV_DEC_UTIL", "Decoder Utilization", gpuquantity.DecoderUtilization, 25, 0.25},
		{250, "DCGM_FI_DEV_FB_TOTAL", "Total Frame Buffer of the GPU in MB", gpuquantity.MemoryLimit, 2, 2097152},
		{252, "DCGM_FI_DEV_FB_USED", "Used Frame Buffer in MB", gpuquantity.MemoryUsed, 2, 2097152},
		{253, "DCGM_FI_DEV_FB_RESERVED", "Reserved Frame Buffer in MB", gpuquantity.MemoryReserved, 2, 2097152},
		{310, "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "single bit volatile ECC errors", gpuquantity.ECCCorrected, 3, 3},
		{311, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "double bit volatile ECC errors", gpuquantity.ECCUncorrected, 3, 3},
		{390, "DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", "because of single bit errors", gpuquantity.RetiredCorrected, 3, 3},
		{391, "DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", "because of double bit errors", gpuquantity.RetiredUncorrected, 3, 3},
		{392, "DCGM_FI_DEV_PAGE_RETIRED_PENDING", "pending retirement", gpuquantity.RetirePending, 1, 1},
		{393, "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "for uncorrectable errors", gpuquantity.RemappedUncorrected, 3, 3},
		{394, "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", "for correctable errors", gpuquantity.RemappedCorrected, 3, 3},
		{395, "DCGM_FI_DEV_ROW_REMAP_FAILED", "remapping of rows has failed", gpuquantity.RemapFailed, 1, 1},
		{396, "DCGM_FI_DEV_ROW_REMAP_PENDING", "remapping of rows is pending", gpuquantity.RemapPending, 1, 1},
		{409, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", "total for all Lanes", gpuquantity.NVLinkCRC, 3, 3},
		{429, "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", "total for all Lanes", gpuquantity.NVLinkReplays, 3, 3},
		{439, "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", "total for all Lanes", gpuquantity.NVLinkRecoveries, 3, 3},
		{
			1001, "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "Ratio of time the graphics engine is active", gpuquantity.Utilization, 0.5,
			0.5,
		},
		{1002, "DCGM_FI_PROF_SM_UTIL_RATIO", "ratio of cycles an SM has at least 1 warp", gpuquantity.SMUtilization, 0.5, 0.5},
		{1003, "DCGM_FI_PROF_SM_OCCUPANCY_RATIO", "ratio of number of warps resident", gpuquantity.SMOccupancy, 0.5, 0.5},
		{1004, "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "any tensor pipe is active", gpuquantity.TensorUtilization, 0.5, 0.5},
		{1005, "DCGM_FI_PROF_DRAM_UTIL_RATIO", "device memory interface", gpuquantity.DRAMUtilization, 0.5, 0.5},
		{1006, "DCGM_FI_PROF_FP64_UTIL_RATIO", "fp64 pipe is active", gpuquantity.PipeFP64, 0.5, 0.5},
		{1007, "DCGM_FI_PROF_FP32_UTIL_RATIO", "fp32 pipe is active", gpuquantity.PipeFP32, 0.5, 0.5},
		{1008, "DCGM_FI_PROF_FP16_UTIL_RATIO", "fp16 pipe is active", gpuquantity.PipeFP16, 0.5, 0.5},
		{1009, "DCGM_FI_PROF_PCIE_TX_BYTES", "device to host (DtoH)", gpuquantity.PCIeTransmit, 5, 5},
		{1010, "DCGM_FI_PROF_PCIE_RX_BYTES", "host to device (HtoD)", gpuquantity.PCIeReceive, 5, 5},
		{1011, "DCGM_FI_PROF_NVLINK_TX_BYTES", "tx (transmit)", gpuquantity.NVLinkTransmit, 5, 5},
		{1012, "DCGM_FI_PROF_NVLINK_RX_BYTES", "rx (read)", gpuquantity.NVLinkReceive, 5, 5},
		{
			1091, "DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL", "Cumulative counter of PCIe TX traffic in bytes", gpuquantity.PCIeTransmit, 5,
			5,
		},
		{
			1092, "DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL", "Cumulative counter of PCIe RX traffic in bytes", gpuquantity.PCIeReceive, 5,
			5,
		},
		{1611, "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", "in joules", gpuquantity.Energy, 612.5, 612.5},
	}
	seen := map[uint16]bool{}
	for _, row := range rows {
		seen[row.id] = true
		f := byID[row.id]
		require.NotNil(t, f, row.name)
		assert.Equal(t, row.quantity, f.quantity, row.name)
		assert.InDelta(t, row.want, f.convert(row.raw), 1e-9*row.want, row.name)
		comment, ok := header[fmt.Sprint(row.name, " ", row.id)]
		if assert.True(t, ok, "the header has no %s %d", row.name, row.id) {
			assert.Contains(t, comment, row.words, row.name)
		}
	}
	for id := range byID {
		assert.True(t, seen[id], "field %d is not in this test", id)
	}
	assert.Less(t, len(byID), maxFields)
}

// TestThrottleReasonsAgainstDCGMsHeader verifies that the bits are NVML's, which DCGM passes on,
// and that the names start like the header's.
func TestThrottleReasonsAgainstDCGMsHeader(t *testing.T) {
	dir, err := nvmltest.Headers()
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "dcgm_fields.h"))
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(
		`#define DCGM_CLOCKS_EVENT_REASON_(\w+) 0x([0-9A-Fa-f]+)LL`).FindAllStringSubmatch(string(b), -1) {
		bit, err := strconv.ParseUint(m[2], 16, 64)
		require.NoError(t, err)
		if m[1] == "GPU_IDLE" { // an idle device is not throttled
			continue
		}
		r := devicesamples.ThrottleReason(bit)
		assert.Contains(t, r.String(), strings.TrimSuffix(strings.ToLower(m[1]), "s"))
	}
}

// TestFormsOfFields verifies that rates are integrated and counters, which the header names totals,
// are used unchanged.
func TestFormsOfFields(t *testing.T) {
	for id, form := range map[uint16]gpuquantity.Form{
		1009: gpuquantity.Rate, 1010: gpuquantity.Rate, 1011: gpuquantity.Rate, 1012: gpuquantity.Rate,
		1091: gpuquantity.Totals, 1092: gpuquantity.Totals, 156: gpuquantity.Plain,
	} {
		assert.Equal(t, form, byID[id].Form, id)
	}
}

// dcgmHeader returns the comment of each field in go-dcgm's header, by "name number".
func dcgmHeader(t *testing.T) map[string]string {
	t.Helper()
	dir, err := nvmltest.Headers()
	require.NoError(t, err)
	b, err := os.ReadFile(filepath.Join(dir, "dcgm_fields.h"))
	require.NoError(t, err)
	fields := map[string]string{}
	for _, m := range regexp.MustCompile(
		`/\*+((?:[^*]|\*[^/])*)\*/\s*#define\s+(DCGM_FI_\w+)\s+(\d+)`).FindAllStringSubmatch(string(b), -1) {
		comment := strings.Join(strings.Fields(strings.ReplaceAll(m[1], "\n *", " ")), " ")
		fields[m[2]+" "+m[3]] = comment
	}
	return fields
}
