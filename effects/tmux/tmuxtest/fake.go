package tmuxtest
