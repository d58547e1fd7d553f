# SPDX-License-Identifier: Apache-2.0
#
# The llama.cpp plugin (plugins/llama) and its demo (examples/llama), where llama.cpp is found. They see cairn.h alone.

file(GLOB llama_sources CONFIGURE_DEPENDS plugins/llama/*.c)
file(GLOB demo_sources CONFIGURE_DEPENDS examples/llama/*.c)
if(CAIRN_LLAMA STREQUAL "OFF" OR CAIRN_FUZZ OR NOT llama_sources)
	return()
endif()

if(CAIRN_LLAMA_PREFIX)
	set(ENV{PKG_CONFIG_PATH} "${CAIRN_LLAMA_PREFIX}/lib/pkgconfig:$ENV{PKG_CONFIG_PATH}")
endif()
pkg_check_modules(LLAMA QUIET IMPORTED_TARGET llama)
if(NOT LLAMA_FOUND)
	if(CAIRN_LLAMA STREQUAL "ON")
		message(FATAL_ERROR "llama.cpp not found: run eval \"$(tools/setup-llama.sh --print)\" and export PKG_CONFIG_PATH, "
			"or set CAIRN_LLAMA_PREFIX")
	endif()
	message(STATUS "llama.cpp not found: no plugin and no demo (tools/setup-llama.sh gets it)")
	return()
endif()
pkg_get_variable(LLAMA_LIBDIR llama libdir)

add_library(cairn-llama STATIC ${llama_sources})
target_include_directories(cairn-llama PUBLIC plugins/llama)
target_link_libraries(cairn-llama PUBLIC cairn_static PkgConfig::LLAMA m)

if(demo_sources)
	add_executable(cairn-llama-demo ${demo_sources})
	target_link_libraries(cairn-llama-demo PRIVATE cairn-llama)
	set_target_properties(cairn-llama-demo PROPERTIES
		BUILD_RPATH "${LLAMA_LIBDIR}" INSTALL_RPATH "${LLAMA_LIBDIR}")
endif()
