//! What every log must do, tried on any implementation.
