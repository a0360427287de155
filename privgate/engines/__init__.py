"""What proposes answers and certificates; nothing here is believed."""
