# Fails when an object of simd/ defines a weak symbol outside its target's namespace: the linker would keep one copy for
# all targets, perhaps one that uses instructions the processor lacks.
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
execute_process(COMMAND ${NM} -C --defined-only ${OBJECTS} OUTPUT_VARIABLE symbols RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  return()
endif()
string(REGEX MATCHALL "[^\n]* [WVu] [^\n]*" weak "${symbols}")
list(FILTER weak EXCLUDE REGEX "lazuli::(sse4|avx2|avx512|neon)::|hwy::N_|DW\\.ref")
if(weak)
  string(REPLACE ";" "\n" weak "${weak}")
  message(FATAL_ERROR "simd/ must not emit symbols shared between targets:\n${weak}")
endif()
