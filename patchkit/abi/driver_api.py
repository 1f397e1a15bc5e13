"""Which CUDA version brought which function of the driver API: the floor for a binary that imports it.

From cudaTypedefs.h of CUDA 13.5, whose type names carry the version, `PFN_cuGreenCtxStreamCreate_v12050`. Functions
that were there before CUDA 11.0 are left out: every driver in use has them.
"""

from __future__ import annotations

from functools import lru_cache

from patchkit.pattern import compile_lazily

_SUFFIX = compile_lazily(r"(?:_v[0-9]+)?(?:_pts[zd]|_ptds)?$")

# Without the `cu` that all of them begin with.
_INTRODUCED = {
    "11.0": (
        "CtxResetPersistingL2Cache FuncGetModule GraphKernelNodeCopyAttributes GraphKernelNodeGetAttribute "
        "GraphKernelNodeSetAttribute MemRetainAllocationHandle StreamCopyAttributes StreamGetAttribute "
        "StreamSetAttribute"
    ),
    "11.1": (
        "ArrayGetSparseProperties DeviceGetTexture1DLinearMaxWidth EventRecordWithFlags GraphAddEventRecordNode "
        "GraphAddEventWaitNode GraphEventRecordNodeGetEvent GraphEventRecordNodeSetEvent "
        "GraphEventWaitNodeGetEvent GraphEventWaitNodeSetEvent GraphExecChildGraphNodeSetParams "
        "GraphExecEventRecordNodeSetEvent GraphExecEventWaitNodeSetEvent GraphUpload MemMapArrayAsync "
        "MipmappedArrayGetSparseProperties"
    ),
    "11.2": (
        "ArrayGetPlane DeviceGetDefaultMemPool DeviceGetMemPool DeviceSetMemPool "
        "GraphAddExternalSemaphoresSignalNode GraphAddExternalSemaphoresWaitNode "
        "GraphExecExternalSemaphoresSignalNodeSetParams GraphExecExternalSemaphoresWaitNodeSetParams "
        "GraphExternalSemaphoresSignalNodeGetParams GraphExternalSemaphoresSignalNodeSetParams "
        "GraphExternalSemaphoresWaitNodeGetParams GraphExternalSemaphoresWaitNodeSetParams MemAllocAsync "
        "MemAllocFromPoolAsync MemFreeAsync MemPoolCreate MemPoolDestroy MemPoolExportPointer "
        "MemPoolExportToShareableHandle MemPoolGetAccess MemPoolGetAttribute MemPoolImportFromShareableHandle "
        "MemPoolImportPointer MemPoolSetAccess MemPoolSetAttribute MemPoolTrimTo"
    ),
    "11.3": (
        "FlushGPUDirectRDMAWrites GetProcAddress GraphDebugDotPrint GraphReleaseUserObject GraphRetainUserObject "
        "StreamUpdateCaptureDependencies UserObjectCreate UserObjectRelease UserObjectRetain"
    ),
    "11.4": (
        "CtxGetExecAffinity DeviceGetExecAffinitySupport DeviceGetGraphMemAttribute DeviceGraphMemTrim "
        "DeviceSetGraphMemAttribute GraphAddMemAllocNode GraphAddMemFreeNode GraphInstantiateWithFlags "
        "GraphMemAllocNodeGetParams GraphMemFreeNodeGetParams"
    ),
    "11.6": (
        "ArrayGetMemoryRequirements GraphNodeGetEnabled GraphNodeSetEnabled LaunchKernelEx "
        "MipmappedArrayGetMemoryRequirements"
    ),
    "11.7": (
        "GraphAddBatchMemOpNode GraphBatchMemOpNodeGetParams GraphBatchMemOpNodeSetParams "
        "GraphExecBatchMemOpNodeSetParams MemGetHandleForAddressRange ModuleGetLoadingMode "
        "OccupancyMaxActiveClusters OccupancyMaxPotentialClusterSize"
    ),
    "12.0": (
        "CtxGetId GraphExecGetFlags GraphInstantiateWithParams KernelGetAttribute KernelGetFunction "
        "KernelSetAttribute KernelSetCacheConfig LibraryGetGlobal LibraryGetKernel LibraryGetManaged "
        "LibraryGetModule LibraryGetUnifiedFunction LibraryLoadData LibraryLoadFromFile LibraryUnload StreamGetId "
        "TensorMapEncodeIm2col TensorMapEncodeTiled TensorMapReplaceAddress"
    ),
    "12.1": (
        "CoredumpGetAttribute CoredumpGetAttributeGlobal CoredumpSetAttribute CoredumpSetAttributeGlobal "
        "CtxSetFlags MulticastAddDevice MulticastBindAddr MulticastBindMem MulticastCreate MulticastGetGranularity "
        "MulticastUnbind"
    ),
    "12.2": "GraphAddNode GraphExecNodeSetParams GraphNodeSetParams",
    "12.3": "FuncGetName GraphConditionalHandleCreate KernelGetName StreamBeginCaptureToGraph",
    "12.4": (
        "CtxFromGreenCtx CtxGetDevResource DevResourceGenerateDesc DevSmResourceSplitByCount DeviceGetDevResource "
        "DeviceRegisterAsyncNotification DeviceUnregisterAsyncNotification FuncGetParamInfo FuncIsLoaded FuncLoad "
        "GreenCtxCreate GreenCtxDestroy GreenCtxGetDevResource GreenCtxRecordEvent GreenCtxWaitEvent "
        "KernelGetParamInfo LibraryEnumerateKernels LibraryGetKernelCount ModuleEnumerateFunctions "
        "ModuleGetFunctionCount StreamGetGreenCtx"
    ),
    "12.5": "CtxRecordEvent CtxWaitEvent GreenCtxStreamCreate KernelGetLibrary",
    "12.6": "MemBatchDecompressAsync",
    "12.8": (
        "CheckpointProcessCheckpoint CheckpointProcessGetRestoreThreadId CheckpointProcessGetState "
        "CheckpointProcessLock CheckpointProcessRestore CheckpointProcessUnlock Memcpy3DBatchAsync "
        "MemcpyBatchAsync StreamGetDevice TensorMapEncodeIm2colWide"
    ),
    "12.9": "GreenCtxGetId LogsCurrent LogsDumpToFile LogsDumpToMemory LogsRegisterCallback LogsUnregisterCallback",
    "13.0": (
        "DeviceGetHostAtomicCapabilities DeviceGetP2PAtomicCapabilities MemDiscardAndPrefetchBatchAsync "
        "MemDiscardBatchAsync MemGetDefaultMemPool MemGetMemPool MemPrefetchBatchAsync MemSetMemPool"
    ),
    "13.1": (
        "DevSmResourceSplit GraphExecGetId GraphGetId GraphNodeGetContainingGraph GraphNodeGetLocalId "
        "GraphNodeGetToolsId StreamBeginCaptureToCig StreamEndCaptureToCig StreamGetDevResource"
    ),
    "13.2": (
        "CoredumpDeregisterCompleteCallback CoredumpDeregisterStartCallback CoredumpRegisterCompleteCallback "
        "CoredumpRegisterStartCallback FuncGetParamCount GraphNodeGetParams KernelGetParamCount "
        "Memcpy3DWithAttributesAsync MemcpyWithAttributesAsync"
    ),
    "13.3": (
        "LogicalEndpointAddDevice LogicalEndpointBindAddr LogicalEndpointBindMem LogicalEndpointCreate "
        "LogicalEndpointDestroy LogicalEndpointExport LogicalEndpointGetLimits LogicalEndpointIdRelease "
        "LogicalEndpointIdReserve LogicalEndpointImport LogicalEndpointQuery LogicalEndpointUnbind "
        "StreamBeginRecaptureToGraph"
    ),
    "13.4": (
        "CheckpointOperationComplete DeviceGetCliqueCount DeviceGetCliqueInfo DeviceGetFabricClusterUuid "
        "MemGetLocationInfo"
    ),
    "13.5": "FabricCpyBatchAsync TensorMapSetAllocationClass",
}


def introduced_in(name: str) -> str:
    """Return the CUDA version that brought a driver function, "" for an older or unknown one."""
    return _table().get(_SUFFIX.sub("", name), "")


@lru_cache(maxsize=1)
def _table() -> dict[str, str]:
    return {f"cu{name}": version for version, names in _INTRODUCED.items() for name in names.split()}
