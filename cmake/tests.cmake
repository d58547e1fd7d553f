# SPDX-License-Identifier: Apache-2.0
#
# Tests are found by their place and name; nothing is registered by hand. See CONTRIBUTING.md, "Tests".
# Labels: the kind (rules, unit, sim, torture, e2e, fuzz, python), and `ci` on what only `make check-ci` runs. In the default build
# the others also carry `check`, so that check-ci does not run them a second time.

# Whatever a test links: all internal objects (libcairn.a holds them), fsck, and the helpers of tests/lib.
add_library(cairn_internal INTERFACE)
target_include_directories(cairn_internal INTERFACE include src tests)
target_compile_definitions(cairn_internal INTERFACE CAIRN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(cairn_internal INTERFACE $<TARGET_NAME_IF_EXISTS:cairn_testlib>
	$<TARGET_NAME_IF_EXISTS:cairnfsck> $<TARGET_NAME_IF_EXISTS:cairndaemon> $<TARGET_NAME_IF_EXISTS:cairnpolicyreal>
	$<TARGET_NAME_IF_EXISTS:cairnplan> cairn_static)

file(GLOB testlib_sources CONFIGURE_DEPENDS tests/lib/*.c)
if(testlib_sources)
	add_library(cairn_testlib STATIC ${testlib_sources})
	target_include_directories(cairn_testlib PUBLIC include src tests)
	target_link_libraries(cairn_testlib PUBLIC $<TARGET_NAME_IF_EXISTS:cairnfsck>
		$<TARGET_NAME_IF_EXISTS:cairndaemon> cairn_static)
endif()

set(test_environment
	CAIRN=${CMAKE_BINARY_DIR}/cairn
	CAIRN_BUILD=${CMAKE_BINARY_DIR}
	CAIRN_SOURCE=${PROJECT_SOURCE_DIR}
	ASAN_OPTIONS=abort_on_error=1:allocator_may_return_null=1:detect_stack_use_after_return=1
	UBSAN_OPTIONS=print_stacktrace=1
	TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1)

# cairn_test(KIND NAME [CI] [IO ENGINE] [PLACE PLACE] COMMAND ...): adds a test. Exit status 77 means skipped. With an
# engine of I/O (threads or uring, see tests/lib/engine.h) its name stands first: threads/unit/test_queue. With a place
# (unix, tcp, tls or ucx, see tests/lib/serving.h) its stores lie behind a cairnd: served/unix/unit/test_queue.
function(cairn_test kind name)
	cmake_parse_arguments(PARSE_ARGV 2 test "CI" "IO;PLACE" "COMMAND")
	set(test "${CAIRN_TEST_PREFIX}${kind}/${name}")
	set(environment "${test_environment}")
	if(test_IO)
		set(test "${CAIRN_TEST_PREFIX}${test_IO}/${kind}/${name}")
		list(APPEND environment CAIRN_TEST_IO=${test_IO})
	endif()
	if(test_PLACE)
		set(test "${CAIRN_TEST_PREFIX}served/${test_PLACE}/${kind}/${name}")
		list(APPEND environment CAIRN_TEST_PLACE=${test_PLACE})
	endif()
	set(labels ${kind})
	set(timeout_s ${CAIRN_TEST_TIMEOUT_S})
	set(cost 0)
	if(test_CI)
		set(cost 100) # the long ones start first
		set(timeout_s ${CAIRN_TEST_TIMEOUT_CI_S})
		if(NOT "ci" IN_LIST CAIRN_TESTS)
			return()
		endif()
		list(APPEND labels ci)
	elseif(NOT CAIRN_TEST_PREFIX)
		list(APPEND labels check)
	endif()
	add_test(NAME ${test} COMMAND ${test_COMMAND})
	set_tests_properties(${test} PROPERTIES
		LABELS "${labels}"
		ENVIRONMENT "${environment}"
		SKIP_RETURN_CODE 77
		COST ${cost}
		TIMEOUT ${timeout_s})
endfunction()

# cairn_test_scripts(KIND): each tests/KIND/*.sh but lib*.sh is a test; ci_*.sh only for check-ci.
function(cairn_test_scripts kind)
	file(GLOB scripts CONFIGURE_DEPENDS tests/${kind}/*.sh)
	foreach(script ${scripts})
		cmake_path(GET script STEM name)
		if(name MATCHES "^lib")
			continue()
		endif()
		set(ci)
		if(name MATCHES "^ci_")
			set(ci CI)
		endif()
		cairn_test(${kind} ${name} ${ci} COMMAND bash ${script})
	endforeach()
endfunction()

# ---- house rules --------------------------------------------------------------------------------------------------

if("rules" IN_LIST CAIRN_TESTS)
	foreach(rule layers style docs)
		cairn_test(rules ${rule} COMMAND python3 -B ${PROJECT_SOURCE_DIR}/tools/check-${rule}.py)
	endforeach()
	cairn_test(rules python COMMAND bash ${PROJECT_SOURCE_DIR}/tools/check-python.sh ${CAIRN_PYTHON_FOUND})
	cairn_test(rules exports COMMAND bash ${PROJECT_SOURCE_DIR}/tools/check-exports.sh $<TARGET_FILE:cairn_shared>)
endif()

# ---- unit ---------------------------------------------------------------------------------------------------------

file(GLOB unit_sources CONFIGURE_DEPENDS tests/unit/test_*.c)
	if(CAIRN_UNIT_ONLY)
		list(FILTER unit_sources INCLUDE REGEX "test_(${CAIRN_UNIT_ONLY})[.]c$")
	endif()
if("unit" IN_LIST CAIRN_TESTS AND unit_sources)
	pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
	foreach(source ${unit_sources})
		cmake_path(GET source STEM name)
		add_executable(${name} ${source})
		target_link_libraries(${name} PRIVATE cairn_internal PkgConfig::CMOCKA PkgConfig::JANSSON)
		set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests)
		# Those that open stores in real directories run over both ways of I/O; the best one that works is one of them.
		file(STRINGS ${source} real_files REGEX "place_init|box_init")
		if(real_files AND NOT name STREQUAL "test_uring")
			set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
			cairn_test(unit ${name} IO threads COMMAND ${name})
			cairn_test(unit ${name} IO uring COMMAND ${name})
		else()
			cairn_test(unit ${name} COMMAND ${name})
		endif()
		# The store's tests run over all places: a directory, and a cairnd on this server and over TCP. Not those of what
		# lies below the API (test_faults_*, test_recover, test_store_nomem: failed allocations and I/O at every step), of
		# opening (test_directory) and of spaces and keys (no bytes travel).
		if(name MATCHES "^test_(store_(get|put|drop|evict|policy|limits|threads)|session|match|queue)$")
			set(ci)
			if(name STREQUAL "test_store_limits") # ten seconds each
				set(ci CI)
			endif()
			cairn_test(unit ${name} ${ci} PLACE unix COMMAND ${name})
			cairn_test(unit ${name} ${ci} PLACE tcp COMMAND ${name})
			cairn_test(unit ${name} CI PLACE tls COMMAND ${name})
			cairn_test(unit ${name} CI PLACE ucx COMMAND ${name}) # skipped where there is none
		endif()
	endforeach()
endif()

# The public header and the shared library, from C++.
file(GLOB cxx_sources CONFIGURE_DEPENDS tests/cxx/*.cc)
if("unit" IN_LIST CAIRN_TESTS AND cxx_sources)
	enable_language(CXX)
	add_executable(cxx_header ${cxx_sources})
	target_compile_options(cxx_header PRIVATE -Wpedantic)
	target_link_libraries(cxx_header PRIVATE cairn_shared)
	set_target_properties(cxx_header PROPERTIES RUNTIME_OUTPUT_DIRECTORY tests)
	cairn_test(unit cxx_header COMMAND cxx_header)
endif()

# ---- sim ----------------------------------------------------------------------------------------------------------

file(GLOB sim_sources CONFIGURE_DEPENDS tests/sim/*.c)
if("sim" IN_LIST CAIRN_TESTS AND sim_sources)
	add_executable(cairn-sim ${sim_sources})
	target_link_libraries(cairn-sim PRIVATE cairn_internal)
	cairn_test(sim seeds COMMAND cairn-sim --seeds ${CAIRN_SIM_SEEDS})
	cairn_test(sim every_io COMMAND cairn-sim --every-io)
	cairn_test(sim every_crash COMMAND cairn-sim --every-crash)
	foreach(run 1 2 3 4)
		math(EXPR first "1000 + (${run} - 1) * ${CAIRN_SIM_SEEDS_CI}")
		math(EXPR last "${first} + ${CAIRN_SIM_SEEDS_CI} - 1")
		cairn_test(sim seeds_${run} CI COMMAND cairn-sim --seeds ${first}-${last})
	endforeach()
endif()

# ---- torture and e2e ----------------------------------------------------------------------------------------------

file(GLOB torture_sources CONFIGURE_DEPENDS tests/torture/torture_*.c)
file(GLOB torture_scripts CONFIGURE_DEPENDS tests/torture/*.sh)
if("torture" IN_LIST CAIRN_TESTS)
	set(script_text)
	foreach(script ${torture_scripts})
		file(READ ${script} text)
		string(APPEND script_text "${text}")
		set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${script})
	endforeach()
	foreach(source ${torture_sources})
		cmake_path(GET source STEM name)
		add_executable(${name} ${source})
		target_link_libraries(${name} PRIVATE cairn_internal)
		# A program that a script names is the script's to run; any other is a test by itself.
		if(NOT script_text MATCHES "${name}")
			cairn_test(torture ${name} COMMAND ${name})
		endif()
	endforeach()
	cairn_test_scripts(torture)
	cairn_test(torture kill CI IO threads COMMAND bash ${PROJECT_SOURCE_DIR}/tests/torture/kill.sh)
endif()

if("e2e" IN_LIST CAIRN_TESTS)
	cairn_test_scripts(e2e)
endif()

# ---- python -------------------------------------------------------------------------------------------------------

# python/tests/test_*.py, over the package of this build (cmake/python.cmake); ci_*.py only for check-ci. Without a Python
# that has what they need (tools/setup-python.sh) they are skipped.
file(GLOB python_tests CONFIGURE_DEPENDS python/tests/test_*.py python/tests/ci_*.py)
if("python" IN_LIST CAIRN_TESTS)
	# A Python that was built without it takes the address sanitizer only so.
	set(preload)
	if(CAIRN_SANITIZE MATCHES "address")
		execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so
			OUTPUT_VARIABLE preload OUTPUT_STRIP_TRAILING_WHITESPACE)
	endif()
	foreach(source ${python_tests})
		cmake_path(GET source STEM name)
		set(ci)
		if(name MATCHES "^ci_")
			set(ci CI)
		endif()
		cairn_test(python ${name} ${ci} COMMAND ${CMAKE_COMMAND} -E env "CAIRN_PRELOAD=${preload}"
			bash ${PROJECT_SOURCE_DIR}/tools/test-python.sh
			${CAIRN_PYTHON_FOUND} ${CMAKE_BINARY_DIR}/python ${source})
	endforeach()
endif()

if("ci" IN_LIST CAIRN_TESTS AND CAIRN_FAULT_MINUTES GREATER 0)
	cairn_test(ci planted-faults CI COMMAND bash ${PROJECT_SOURCE_DIR}/tools/planted-faults.sh
	           --minutes ${CAIRN_FAULT_MINUTES})
	set_tests_properties(${CAIRN_TEST_PREFIX}ci/planted-faults PROPERTIES RUN_SERIAL ON)
endif()

# ---- fuzz ---------------------------------------------------------------------------------------------------------

# fuzz_NAME.c reads tests/fuzz/corpus/NAME/. With CAIRN_FUZZ it is a libFuzzer program, else it replays its corpus.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
if("fuzz" IN_LIST CAIRN_TESTS)
	foreach(source ${fuzz_sources})
		cmake_path(GET source STEM target)
		string(REGEX REPLACE "^fuzz_" "" name ${target})
		set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name})
		add_executable(${target} ${source})
		target_link_libraries(${target} PRIVATE cairn_internal)
		if(NOT CAIRN_FUZZ)
			target_sources(${target} PRIVATE tests/fuzz/replay.c)
			target_compile_definitions(${target} PRIVATE FUZZ_CORPUS="${corpus}")
			cairn_test(fuzz ${name} COMMAND ${target})
			continue()
		endif()
		target_link_options(${target} PRIVATE -fsanitize=fuzzer)
		set(found ${CMAKE_BINARY_DIR}/found/${name})
		file(MAKE_DIRECTORY ${found})
		set(arguments -timeout=10 -rss_limit_mb=2048 -artifact_prefix=${CMAKE_BINARY_DIR}/crash-${name}-)
		if(EXISTS ${corpus})
			cairn_test(fuzz ${name} COMMAND ${target} ${arguments} -runs=0 ${corpus})
		else()
			set(corpus)
		endif()
		if(EXISTS ${PROJECT_SOURCE_DIR}/tests/fuzz/${name}.dict)
			list(APPEND arguments -dict=${PROJECT_SOURCE_DIR}/tests/fuzz/${name}.dict)
		endif()
		cairn_test(fuzz ${name}_live COMMAND ${target} ${arguments} -max_total_time=${CAIRN_FUZZ_SECONDS}
			-print_final_stats=1 ${found} ${corpus})
		math(EXPR timeout_s "${CAIRN_FUZZ_SECONDS} * 2 + 120")
		set_tests_properties(${CAIRN_TEST_PREFIX}fuzz/${name}_live PROPERTIES TIMEOUT ${timeout_s} COST 50)
	endforeach()
endif()
