#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# CairnTier under a real vLLM with a real model, beside vLLM's own file tier: see tests/e2e/vllm/tier.py.
exec bash "$(dirname "$0")/lib_vllm.sh" tier
