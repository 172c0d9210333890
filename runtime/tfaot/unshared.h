// Used by headers that programs include.
#ifndef TFAOT_UNSHARED_H_
#define TFAOT_UNSHARED_H_

// Of static members that programs take the address of: a copy stays in the
// program or shared library that made it. Otherwise, all libraries in a process
// use the same one, and none of them can be unloaded.
#if defined(__ELF__)
#define TFAOT_UNSHARED __attribute__((visibility("hidden")))
#else
#define TFAOT_UNSHARED
#endif

#endif  // TFAOT_UNSHARED_H_
