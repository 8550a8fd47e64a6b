"""From a record to one measured run: the ledger, the loader, the device. No rules."""
