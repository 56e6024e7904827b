# find_package(Lazuli), in the native/CMakeLists.txt of a package that `lazuli-kernel build` builds:
#
#   lazuli_kernels(NAME SOURCE…)    the library of kernels, where the package's load code finds it
#
# NAME is a target: target_link_libraries and the like hold for it.
function(lazuli_kernels NAME)
  foreach(SETTING LAZULI_INCLUDE LAZULI_LIBRARY)
    if(NOT ${SETTING})
      message(FATAL_ERROR "${SETTING} is not set: build with lazuli-kernel build")
    endif()
  endforeach()
  get_filename_component(FOLDER "${LAZULI_LIBRARY}" DIRECTORY)
  get_filename_component(STEM "${LAZULI_LIBRARY}" NAME_WLE)
  get_filename_component(SUFFIX "${LAZULI_LIBRARY}" LAST_EXT)
  add_library(${NAME} MODULE ${ARGN})
  target_include_directories(${NAME} PRIVATE "${LAZULI_INCLUDE}")
  target_compile_features(${NAME} PRIVATE cxx_std_17)
  if(MSVC)
    target_compile_options(${NAME} PRIVATE /O2 /fp:precise ${LAZULI_FLAGS})
  else()
    # No contraction to fused multiply-adds: results are the same bits with and without a kernel.
    target_compile_options(${NAME} PRIVATE -O3 -ffp-contract=off -Wall -Wextra -Wno-missing-field-initializers ${LAZULI_FLAGS})
  endif()
  target_link_libraries(${NAME} PRIVATE ${LAZULI_LIBRARIES})
  set_target_properties(${NAME} PROPERTIES
    PREFIX "" SUFFIX "${SUFFIX}" OUTPUT_NAME "${STEM}" CXX_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${FOLDER}" LIBRARY_OUTPUT_DIRECTORY_RELEASE "${FOLDER}"
    RUNTIME_OUTPUT_DIRECTORY "${FOLDER}" RUNTIME_OUTPUT_DIRECTORY_RELEASE "${FOLDER}")
endfunction()
