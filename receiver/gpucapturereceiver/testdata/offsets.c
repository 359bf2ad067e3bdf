// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Compares shim/cupti.h with NVIDIA's header; KERNEL_T and so on are the newest structures of the header.
#include <cuda.h>
#include <cupti_activity.h>
#include <cupti_callbacks.h>
#include <stddef.h>

#include "cupti.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define IS(a, b) _Static_assert((int)(a) == (int)(b), #a)

AT(KERNEL_T, registersPerThread, KERNEL_REGISTERS);
AT(KERNEL_T, start, KERNEL_START);
AT(KERNEL_T, end, KERNEL_END);
AT(KERNEL_T, deviceId, KERNEL_DEVICE);
AT(KERNEL_T, contextId, KERNEL_CONTEXT);
AT(KERNEL_T, streamId, KERNEL_STREAM);
AT(KERNEL_T, gridX, KERNEL_GRID);
AT(KERNEL_T, blockX, KERNEL_BLOCK);
AT(KERNEL_T, staticSharedMemory, KERNEL_STATIC_SHARED);
AT(KERNEL_T, dynamicSharedMemory, KERNEL_DYNAMIC_SHARED);
AT(KERNEL_T, correlationId, KERNEL_CORRELATION);
AT(KERNEL_T, name, KERNEL_NAME);
AT(KERNEL_T, graphNodeId, KERNEL_GRAPH_NODE);
AT(COPY_T, copyKind, COPY_KIND);
AT(COPY_T, srcKind, COPY_SRC);
AT(COPY_T, dstKind, COPY_DST);
AT(COPY_T, bytes, COPY_BYTES);
AT(COPY_T, start, COPY_START);
AT(COPY_T, end, COPY_END);
AT(COPY_T, deviceId, COPY_DEVICE);
AT(COPY_T, contextId, COPY_CONTEXT);
AT(COPY_T, streamId, COPY_STREAM);
AT(COPY_T, correlationId, COPY_CORRELATION);
AT(COPY_T, graphNodeId, COPY_GRAPH_NODE);
AT(CUpti_ActivityMemcpyPtoP4, bytes, COPY_BYTES);
AT(CUpti_ActivityMemcpyPtoP4, start, COPY_START);
AT(CUpti_ActivityMemcpyPtoP4, end, COPY_END);
AT(CUpti_ActivityMemcpyPtoP4, deviceId, COPY_DEVICE);
AT(CUpti_ActivityMemcpyPtoP4, streamId, COPY_STREAM);
AT(CUpti_ActivityMemcpyPtoP4, correlationId, PEER_CORRELATION);
AT(SET_T, bytes, SET_BYTES);
AT(SET_T, start, SET_START);
AT(SET_T, end, SET_END);
AT(SET_T, deviceId, SET_DEVICE);
AT(SET_T, contextId, SET_CONTEXT);
AT(SET_T, streamId, SET_STREAM);
AT(SET_T, correlationId, SET_CORRELATION);

AT(CUpti_CallbackData, callbackSite, offsetof(struct cupti_call, site));
AT(CUpti_CallbackData, correlationData, offsetof(struct cupti_call, data));
AT(CUpti_CallbackData, correlationId, offsetof(struct cupti_call, correlation));
IS(CUPTI_API_ENTER, 0);
IS(CUPTI_API_EXIT, 1);

IS(CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
IS(CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
IS(CUPTI_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
IS(CUPTI_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2);
IS(CUPTI_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
IS(CUPTI_RUNTIME, CUPTI_CB_DOMAIN_RUNTIME_API);
IS(CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
IS(CUPTI_MAX_LIMIT_REACHED, CUPTI_ERROR_MAX_LIMIT_REACHED);
