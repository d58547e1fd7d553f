# SPDX-License-Identifier: Apache-2.0
#
# Options, compiler flags and sanitizers. Presets (CMakePresets.json) set them; see CONTRIBUTING.md.

option(CAIRN_WERROR "Warnings are errors" OFF)
set(CAIRN_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: \"address,undefined\" or \"thread\"")
option(CAIRN_FUZZ "Link the fuzz targets with libFuzzer and address,undefined (clang); builds nothing else" OFF)
set(CAIRN_LLAMA AUTO CACHE STRING "The llama.cpp plugin and its demo: AUTO, ON or OFF")
set(CAIRN_LLAMA_PREFIX "" CACHE PATH "Where llama.cpp is installed; empty: pkg-config finds it")
set(CAIRN_PYTHON AUTO CACHE STRING "The Python package cairnkv: AUTO, ON or OFF")
set(CAIRN_TESTS rules unit sim torture e2e fuzz python ci CACHE STRING "Kinds of tests to add; empty: none")
set(CAIRN_TEST_PREFIX "" CACHE STRING "Put before the name of every test, as \"asan/\"")
set(CAIRN_TEST_TIMEOUT_S 300 CACHE STRING "Seconds a test may take")
set(CAIRN_TEST_TIMEOUT_CI_S 1800 CACHE STRING "The same for a test of kind ci")
set(CAIRN_SIM_SEEDS 1-40 CACHE STRING "Seeds that the simulator runs in make check")
set(CAIRN_SIM_SEEDS_CI 1000 CACHE STRING "Seeds of each of the four long simulator runs of kind ci")
set(CAIRN_FAULT_MINUTES 0 CACHE STRING "Minutes after which tools/planted-faults.sh begins no more faults; 0: it is not run")
set(CAIRN_UNIT_ONLY "" CACHE STRING "Regular expression of the unit tests to build; empty: all")
set(CAIRN_FUZZ_SECONDS 10 CACHE STRING "Seconds of live fuzzing of each target (CAIRN_FUZZ)")
set_property(CACHE CAIRN_LLAMA CAIRN_PYTHON PROPERTY STRINGS AUTO ON OFF)

if(NOT CMAKE_BUILD_TYPE)
	set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# Asserts stay on: no build type defines NDEBUG.
foreach(language C CXX)
	set(CMAKE_${language}_FLAGS_RELWITHDEBINFO "-O2 -g")
	set(CMAKE_${language}_FLAGS_RELEASE "-O2")
endforeach()

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_CXX_STANDARD 11)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(-Wall -Wextra $<$<COMPILE_LANGUAGE:C>:-Werror=implicit-function-declaration>)
if(CAIRN_WERROR)
	add_compile_options(-Werror)
endif()

if(CAIRN_FUZZ)
	if(NOT CMAKE_C_COMPILER_ID MATCHES "Clang")
		message(FATAL_ERROR "CAIRN_FUZZ needs clang: use the fuzz preset")
	endif()
	add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
	add_link_options(-fsanitize=address,undefined)
elseif(CAIRN_SANITIZE)
	add_compile_options(-fsanitize=${CAIRN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
	add_link_options(-fsanitize=${CAIRN_SANITIZE})
	if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
		# gcc warns of what only its own instrumentation makes look wrong.
		add_compile_options(-Wno-maybe-uninitialized -Wno-tsan)
	endif()
endif()
