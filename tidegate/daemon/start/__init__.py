"""What a start would be refused for, found out before anything is started."""
