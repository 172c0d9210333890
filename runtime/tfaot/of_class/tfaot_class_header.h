// The header of the class that c_api.cc is compiled for. In a folder of its
// own, because a compiler looks there first: a class may have a header
// `weights.h`.
#ifndef TFAOT_OF_CLASS_TFAOT_CLASS_HEADER_H_
#define TFAOT_OF_CLASS_TFAOT_CLASS_HEADER_H_

#include TFAOT_CLASS_HEADER

#endif  // TFAOT_OF_CLASS_TFAOT_CLASS_HEADER_H_
