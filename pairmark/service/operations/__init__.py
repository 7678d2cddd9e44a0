"""Operations: backup, restore and the checks of `pairmark doctor`."""
