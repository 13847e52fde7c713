#!/usr/bin/env bash
# Step 1, on every Node on which the controller has run since the backup: what it logged.
. "$(dirname "$0")/settings.sh"

ls $LOGS || echo "No log matches $LOGS. Set it again, unless no controller has run on this Node since the backup." >&2
{ zgrep --text --no-filename --extended-regexp 'Assign(ed|ing) podCIDRs' $LOGS || true; } | sort > "$WORK/manager.log"
