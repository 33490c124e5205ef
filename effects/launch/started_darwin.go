package launch

// runs cannot be told without more than the kernel gives to every program. The
// launcher removes its file last of all before the exec, so that is the sign.
func runs(int, string) bool { return false }
