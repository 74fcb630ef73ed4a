/* Operators of libtorch for programs saved with standalone="libtorch":
 *
 *     fg_options options = {sizeof options, 1, fg_libtorch()};
 *     fg_program* program = fg_load("m.fg", &options);
 *
 * Operators of further libraries (torchvision's, say) are found if these are linked, too. */
#ifndef FRAMEGRAPH_LIBTORCH_H
#define FRAMEGRAPH_LIBTORCH_H

#include "framegraph.h"

#ifdef __cplusplus
extern "C" {
#endif

const fg_operators* fg_libtorch(void);

#ifdef __cplusplus
}
#endif

#endif
