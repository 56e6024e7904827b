# Machine code for scalar programs, made at run time with asmjit (Zlib licence), linked statically. Optional, and for x86-64
# alone: elsewhere scalar programs are interpreted.
option(LAZULI_JIT "make machine code at run time where asmjit is found" ON)
set(MACHINE "${CMAKE_CURRENT_SOURCE_DIR}/machine")
set(LAZULI_MACHINE_SOURCES "${MACHINE}/code.cc")
if(NOT LAZULI_JIT OR NOT "x86_64" STREQUAL "${LAZULI_PROCESSOR}")
  return()
endif()

find_path(LAZULI_ASMJIT_INCLUDE asmjit/x86.h)
find_library(LAZULI_ASMJIT libasmjit.a)
set(asmjit_links 1)
if(LAZULI_ASMJIT_INCLUDE AND LAZULI_ASMJIT)
  # A static library need not be fit for an addon.
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS}")
  execute_process(
    COMMAND ${CMAKE_CXX_COMPILER} ${flags} -std=c++20 -fPIC -shared -DASMJIT_STATIC -I${LAZULI_ASMJIT_INCLUDE}
      "${MACHINE}/emit.cc" "${MACHINE}/asmjit_messages.cc" "-I${CMAKE_CURRENT_SOURCE_DIR}" ${LAZULI_ASMJIT}
      -o "${CMAKE_BINARY_DIR}/asmjit-check.so"
    RESULT_VARIABLE asmjit_links OUTPUT_QUIET ERROR_QUIET)
endif()
if(NOT asmjit_links EQUAL 0)
  message(STATUS "no asmjit to link: scalar programs are interpreted")
  return()
endif()
file(GLOB LAZULI_MACHINE_SOURCES CONFIGURE_DEPENDS "${MACHINE}/*.cc")
set(LAZULI_MACHINE_INCLUDE "${LAZULI_ASMJIT_INCLUDE}")
set(LAZULI_MACHINE_LIBRARIES "${LAZULI_ASMJIT}")
set(LAZULI_MACHINE_DEFINITIONS LAZULI_MACHINE_CODE=1 ASMJIT_STATIC)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
  list(APPEND LAZULI_MACHINE_LIBRARIES rt)
endif()
