#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# CairnConnector under many requests at once, with preemption and eviction everywhere: see tests/e2e/vllm/crowd.py.
exec bash "$(dirname "$0")/lib_vllm.sh" crowd
