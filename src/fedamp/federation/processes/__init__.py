"""Other programs: started, watched and ended, with nothing left behind."""
