//! The server's entry, `RedisModule_OnLoad`, is in the library (`src/module`); linking the library here exports it.

use library as _;
