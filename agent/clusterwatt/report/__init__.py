"""What the books say, for people: tables, receipts, cards."""
