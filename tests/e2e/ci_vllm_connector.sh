#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# CairnConnector under a real vLLM with a real model: see tests/e2e/vllm/connector.py.
exec bash "$(dirname "$0")/lib_vllm.sh" connector
