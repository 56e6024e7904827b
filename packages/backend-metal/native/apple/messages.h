// Every message that is sent to Apple's objects, and every constant that goes with them. `node
// tooling/metal-headers.mjs FOLDER` checks both against Apple's headers for C++.
#pragma once

#include "apple/objc.h"

namespace lz::apple {

// Foundation
inline const Message<Id()> alloc{"NSObject", "alloc"};
inline const Message<Id()> init{"NSObject", "init"};
inline const Message<Id()> retain{"NSObject", "retain"};
inline const Message<void()> release{"NSObject", "release"};
inline const Message<bool(Sel)> respondsToSelector{"NSObject", "respondsToSelector:"};
inline const Message<Id(const char*, UInteger)> stringWithCString{"NSString", "stringWithCString:encoding:"};
inline const Message<const char*()> utf8String{"NSString", "UTF8String"};
inline const Message<Id()> localizedDescription{"NSError", "localizedDescription"};
inline const Message<Integer()> errorCode{"NSError", "code"};
inline const Message<UInteger()> arrayCount{"NSArray", "count"};
inline const Message<Id(UInteger)> objectAtIndex{"NSArray", "objectAtIndex:"};
inline const Message<Id()> keyEnumerator{"NSDictionary", "keyEnumerator"};
inline const Message<Id(Id)> objectForKey{"NSDictionary", "objectForKey:"};
inline const Message<Id()> nextObject{"NSEnumerator", "nextObject"};
inline const Message<Id(Id)> fileURLWithPath{"NSURL", "fileURLWithPath:"};

// The device
inline const Message<Id()> deviceName{"MTLDevice", "name"};
inline const Message<Id()> architecture{"MTLDevice", "architecture"};
inline const Message<Id()> architectureName{"MTLArchitecture", "name"};
inline const Message<bool(Integer)> supportsFamily{"MTLDevice", "supportsFamily:"};
inline const Message<bool()> hasUnifiedMemory{"MTLDevice", "hasUnifiedMemory"};
inline const Message<UInteger()> maxBufferLength{"MTLDevice", "maxBufferLength"};
inline const Message<UInteger()> maxThreadgroupMemoryLength{"MTLDevice", "maxThreadgroupMemoryLength"};
inline const Message<uint64_t()> recommendedMaxWorkingSetSize{"MTLDevice", "recommendedMaxWorkingSetSize"};
inline const Message<UInteger()> currentAllocatedSize{"MTLDevice", "currentAllocatedSize"};
inline const Message<Id()> newCommandQueue{"MTLDevice", "newCommandQueue"};
inline const Message<Id()> newFence{"MTLDevice", "newFence"};
inline const Message<Id()> newSharedEvent{"MTLDevice", "newSharedEvent"};

// Memory
inline const Message<Id(UInteger, UInteger)> newBuffer{"MTLDevice", "newBufferWithLength:options:"};
inline const Message<Id(const void*, UInteger, UInteger, Id)> newBufferNoCopy{
    "MTLDevice", "newBufferWithBytesNoCopy:length:options:deallocator:"};
inline const Message<void*()> contents{"MTLBuffer", "contents"};
inline const Message<Id(Id, Id*)> newResidencySet{"MTLDevice", "newResidencySetWithDescriptor:error:"};
inline const Message<void(Id)> addAllocation{"MTLResidencySet", "addAllocation:"};
inline const Message<void(Id)> removeAllocation{"MTLResidencySet", "removeAllocation:"};
inline const Message<void()> commitResidency{"MTLResidencySet", "commit"};
inline const Message<void()> requestResidency{"MTLResidencySet", "requestResidency"};
inline const Message<void()> endResidency{"MTLResidencySet", "endResidency"};
inline const Message<void(Id)> addResidencySet{"MTLCommandQueue", "addResidencySet:"};

// Libraries and pipelines
inline const Message<void(UInteger)> setLanguageVersion{"MTLCompileOptions", "setLanguageVersion:"};
inline const Message<void(Integer)> setMathMode{"MTLCompileOptions", "setMathMode:"};
inline const Message<void(bool)> setFastMathEnabled{"MTLCompileOptions", "setFastMathEnabled:"};
inline const Message<Id(Id, Id, Id*)> newLibraryWithSource{"MTLDevice",
                                                           "newLibraryWithSource:options:error:"};
inline const Message<Id(Id, Id*)> newLibraryWithURL{"MTLDevice", "newLibraryWithURL:error:"};
inline const Message<Id()> functionNames{"MTLLibrary", "functionNames"};
inline const Message<Id(Id)> newFunction{"MTLLibrary", "newFunctionWithName:"};
inline const Message<Id(Id, Id, Id*)> newFunctionWithConstants{"MTLLibrary",
                                                               "newFunctionWithName:constantValues:error:"};
inline const Message<Id()> functionConstants{"MTLFunction", "functionConstantsDictionary"};
inline const Message<UInteger()> constantIndex{"MTLFunctionConstant", "index"};
inline const Message<UInteger()> constantType{"MTLFunctionConstant", "type"};
inline const Message<void(const void*, UInteger, UInteger)> setConstantValue{
    "MTLFunctionConstantValues", "setConstantValue:type:atIndex:"};
inline const Message<Id(Id, Id*)> newPipeline{"MTLDevice", "newComputePipelineStateWithFunction:error:"};
inline const Message<UInteger()> maxTotalThreads{"MTLComputePipelineState", "maxTotalThreadsPerThreadgroup"};
inline const Message<UInteger()> threadExecutionWidth{"MTLComputePipelineState", "threadExecutionWidth"};

// Work
inline const Message<Id()> commandBuffer{"MTLCommandQueue", "commandBufferWithUnretainedReferences"};
inline const Message<Id(UInteger)> computeEncoder{"MTLCommandBuffer",
                                                  "computeCommandEncoderWithDispatchType:"};
inline const Message<void(Id)> setPipeline{"MTLComputeCommandEncoder", "setComputePipelineState:"};
inline const Message<void(Id, UInteger, UInteger)> setBuffer{"MTLComputeCommandEncoder",
                                                             "setBuffer:offset:atIndex:"};
inline const Message<void(const void*, UInteger, UInteger)> setBytes{"MTLComputeCommandEncoder",
                                                                     "setBytes:length:atIndex:"};
inline const Message<void(UInteger, UInteger)> setThreadgroupMemory{"MTLComputeCommandEncoder",
                                                                    "setThreadgroupMemoryLength:atIndex:"};
inline const Message<void(Size, Size)> dispatchThreads{"MTLComputeCommandEncoder",
                                                       "dispatchThreads:threadsPerThreadgroup:"};
inline const Message<void(Size, Size)> dispatchThreadgroups{"MTLComputeCommandEncoder",
                                                            "dispatchThreadgroups:threadsPerThreadgroup:"};
inline const Message<void(UInteger)> memoryBarrier{"MTLComputeCommandEncoder", "memoryBarrierWithScope:"};
inline const Message<void(Id)> waitForFence{"MTLComputeCommandEncoder", "waitForFence:"};
inline const Message<void(Id)> updateFence{"MTLComputeCommandEncoder", "updateFence:"};
inline const Message<void()> endEncoding{"MTLCommandEncoder", "endEncoding"};
inline const Message<void(Id, uint64_t)> encodeSignalEvent{"MTLCommandBuffer", "encodeSignalEvent:value:"};
inline const Message<void(Id, uint64_t)> encodeWaitForEvent{"MTLCommandBuffer", "encodeWaitForEvent:value:"};
inline const Message<void()> commit{"MTLCommandBuffer", "commit"};
inline const Message<UInteger()> status{"MTLCommandBuffer", "status"};
inline const Message<Id()> commandError{"MTLCommandBuffer", "error"};
inline const Message<void()> waitUntilCompleted{"MTLCommandBuffer", "waitUntilCompleted"};
inline const Message<uint64_t()> signaledValue{"MTLSharedEvent", "signaledValue"};
inline const Message<void(uint64_t)> setSignaledValue{"MTLSharedEvent", "setSignaledValue:"};
inline const Message<bool(uint64_t, uint64_t)> waitUntilSignaled{"MTLSharedEvent",
                                                                 "waitUntilSignaledValue:timeoutMS:"};

// Captures
inline const Message<Id()> sharedCaptureManager{"MTLCaptureManager", "sharedCaptureManager"};
inline const Message<bool(Integer)> supportsDestination{"MTLCaptureManager", "supportsDestination:"};
inline const Message<bool()> isCapturing{"MTLCaptureManager", "isCapturing"};
inline const Message<bool(Id, Id*)> startCapture{"MTLCaptureManager", "startCaptureWithDescriptor:error:"};
inline const Message<void()> stopCapture{"MTLCaptureManager", "stopCapture"};
inline const Message<void(Id)> setCaptureObject{"MTLCaptureDescriptor", "setCaptureObject:"};
inline const Message<void(Integer)> setDestination{"MTLCaptureDescriptor", "setDestination:"};
inline const Message<void(Id)> setOutputURL{"MTLCaptureDescriptor", "setOutputURL:"};

// Constants, by their names in the headers.
inline constexpr UInteger UTF8StringEncoding = 4;
inline constexpr UInteger ResourceStorageModeShared = 0;
inline constexpr UInteger ResourceHazardTrackingModeUntracked = 1 << 8;
inline constexpr UInteger LanguageVersion3_1 = 196609;
inline constexpr Integer MathModeSafe = 0;
inline constexpr Integer MathModeRelaxed = 1;
inline constexpr Integer MathModeFast = 2;
inline constexpr UInteger DataTypeFloat = 3;
inline constexpr UInteger DataTypeHalf = 16;
inline constexpr UInteger DataTypeInt = 29;
inline constexpr UInteger DataTypeUInt = 33;
inline constexpr UInteger DataTypeShort = 37;
inline constexpr UInteger DataTypeUShort = 41;
inline constexpr UInteger DataTypeChar = 45;
inline constexpr UInteger DataTypeUChar = 49;
inline constexpr UInteger DataTypeBool = 53;
inline constexpr UInteger DataTypeLong = 81;
inline constexpr UInteger DataTypeULong = 85;
inline constexpr UInteger DispatchTypeConcurrent = 1;
inline constexpr UInteger BarrierScopeBuffers = 1;
inline constexpr UInteger CommandBufferStatusCompleted = 4;
inline constexpr UInteger CommandBufferStatusError = 5;
inline constexpr Integer CommandBufferErrorOutOfMemory = 8;
inline constexpr Integer CaptureDestinationGPUTraceDocument = 2;
inline constexpr Integer GPUFamilyApple7 = 1007;
inline constexpr Integer GPUFamilyMetal3 = 5001;

}  // namespace lz::apple
