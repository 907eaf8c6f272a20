"""Processes of other programs: started, watched and ended, with nothing left behind."""
