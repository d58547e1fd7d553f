# SPDX-License-Identifier: Apache-2.0
#
# The Python package cairnkv (python/, pyproject.toml). In a build by scikit-build-core it is installed into the wheel; in
# any other it is put together in build/PRESET/python, for the tests, where a Python with cffi is found.
#
# Both have the same shape, so that the package finds its library and programs in the same way:
#
#   cairnkv/*.py, _cairn.abi3.so    the package and its extension
#   cairnkv/lib/libcairn.so.0       $ORIGIN/lib of the extension
#   cairnkv/bin/cairn, cairnd       ../bin of the library: cairnd is found there when it has to be started

set(CAIRN_PYTHON_FOUND "none")
if(CAIRN_PYTHON STREQUAL "OFF" OR CAIRN_FUZZ OR NOT TARGET cairnd)
	return()
endif()

# The environment that tools/setup-python.sh makes, unless another Python is named (scikit-build-core names its own).
if(NOT Python3_EXECUTABLE)
	execute_process(COMMAND ${PROJECT_SOURCE_DIR}/tools/setup-python.sh --find
		OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
	if(found)
		set(Python3_EXECUTABLE ${found})
	endif()
endif()
find_package(Python3 3.9 QUIET COMPONENTS Interpreter Development.Module)
set(cffi_status 1)
if(Python3_FOUND)
	execute_process(COMMAND ${Python3_EXECUTABLE} -c "import cffi; assert cffi.__version_info__ >= (1, 17)"
		RESULT_VARIABLE cffi_status OUTPUT_QUIET ERROR_QUIET)
endif()
if(NOT cffi_status EQUAL 0)
	if(CAIRN_PYTHON STREQUAL "ON")
		message(FATAL_ERROR "no Python 3.9 or newer with its headers and cffi: run tools/setup.sh and tools/setup-python.sh")
	endif()
	message(STATUS "no Python with headers and cffi: no Python package (tools/setup-python.sh gets it)")
	return()
endif()

set(CAIRN_PYTHON_FOUND ${Python3_EXECUTABLE})
set(package ${CMAKE_CURRENT_BINARY_DIR}/python/cairnkv)
set(extension_source ${CMAKE_CURRENT_BINARY_DIR}/_cairn.c)
add_custom_command(OUTPUT ${extension_source}
	COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/python/build_ffi.py
		${PROJECT_SOURCE_DIR}/include/cairn/cairn.h ${extension_source}
	DEPENDS python/build_ffi.py python/header.py include/cairn/cairn.h VERBATIM)

# The stable interface of Python 3.9, as cffi's source asks for by itself: one file for all versions from there on.
add_library(cairnkv_extension MODULE ${extension_source})
target_include_directories(cairnkv_extension PRIVATE python ${Python3_INCLUDE_DIRS})
target_compile_options(cairnkv_extension PRIVATE -Wno-unused-function -Wno-missing-field-initializers
	-Wno-unused-parameter)
set_source_files_properties(${extension_source} PROPERTIES OBJECT_DEPENDS ${PROJECT_SOURCE_DIR}/python/batch.h)
target_link_libraries(cairnkv_extension PRIVATE cairn_shared)
set_target_properties(cairnkv_extension PROPERTIES PREFIX "" OUTPUT_NAME _cairn SUFFIX .abi3.so
	LIBRARY_OUTPUT_DIRECTORY ${package} BUILD_RPATH_USE_ORIGIN ON
	BUILD_RPATH "\$ORIGIN/lib" INSTALL_RPATH "\$ORIGIN/lib")

if(SKBUILD)
	add_custom_target(cairnkv DEPENDS cairnkv_extension cairn_shared cairn-cli cairnd)
	install(TARGETS cairnkv_extension LIBRARY DESTINATION cairnkv COMPONENT python)
	install(TARGETS cairn-cli cairnd RUNTIME DESTINATION cairnkv/bin COMPONENT python)
	# The name that the extension asks for is the only one: wheels have no links.
	install(FILES $<TARGET_FILE:cairn_shared> DESTINATION cairnkv/lib COMPONENT python
		RENAME libcairn.so.0)
	return()
endif()

file(GLOB python_files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/python/cairnkv python/cairnkv/*)
list(FILTER python_files EXCLUDE REGEX "__pycache__")
file(MAKE_DIRECTORY ${package}/lib ${package}/bin)
foreach(name ${python_files})
	file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/cairnkv/${name} ${package}/${name} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_CURRENT_BINARY_DIR}/libcairn.so.0 ${package}/lib/libcairn.so.0 SYMBOLIC)
foreach(name cairn cairnd)
	file(CREATE_LINK ${CMAKE_CURRENT_BINARY_DIR}/${name} ${package}/bin/${name} SYMBOLIC)
endforeach()
add_custom_target(cairnkv ALL DEPENDS cairnkv_extension cairn-cli cairnd)
