/* SPDX-License-Identifier: MIT */
/* Marks over everything and of one stream (fake_stream.c), and waits for everything. */
#include "allocator/fake/internal.h"

#include <errno.h>

struct mark *
ca_model_mark_new(struct ca_model *model, ca_mark *ret_mark)
{
	struct mark *mark = ca_objects_get(&model->marks);

	if (!mark)
		return NULL;
	ca_tree_insert(&model->recorded, &mark->node, ++model->next_mark, 0);
	model->sums.marks++;
	*ret_mark = model->next_mark;
	return mark;
}

struct mark *
ca_model_mark_find(struct ca_model *model, ca_mark id)
{
	struct ca_tree_node *node = ca_tree_find(&model->recorded, id, 0);

	if (node)
		return CA_CONTAINER_OF(node, struct mark, node);
	model->sums.errors++;
	return NULL;
}

int
ca_model_mark_record(void *self, void *context, ca_mark *ret_mark)
{
	struct ca_model *model = self;
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, CA_MODEL_RECORD);
	r = ca_model_begin_in(model, CA_MODEL_RECORD, context);
	if (r)
		return r;
	if (model->config.no_marks)
		return -ENOTSUP;
	if (model->capturing)
		return -EBUSY;
	mark = ca_model_mark_new(model, ret_mark);
	if (!mark)
		return -ENOMEM;
	ca_model_mark_everything(model, mark);
	return 0;
}

static int
mark_answer(struct ca_model *model, ca_mark id, enum ca_model_function function)
{
	struct mark *mark;
	int r;

	CA_MODEL_CALL(model, function);
	mark = ca_model_mark_find(model, id);
	r = ca_model_begin(model, function);
	if (r || !mark)
		return r;
	if (model->capturing && !mark->stream)
		return -EBUSY;
	if (function == CA_MODEL_WAIT) {
		ca_model_await(model, mark->end_ns);
		ca_model_mark_finish(model, mark);
	}
	return ca_model_mark_is_done(model, mark) ? 0 : -EAGAIN;
}

int
ca_model_mark_query(void *self, ca_mark mark)
{
	return mark_answer(self, mark, CA_MODEL_QUERY);
}

int
ca_model_mark_wait(void *self, ca_mark mark)
{
	return mark_answer(self, mark, CA_MODEL_WAIT);
}

void
ca_model_mark_drop(void *self, ca_mark id)
{
	struct ca_model *model = self;
	struct mark *mark;

	CA_MODEL_CALL(model, CA_MODEL_DROP);
	model->sums.calls[CA_MODEL_DROP]++;
	mark = ca_model_mark_find(model, id);
	if (!mark)
		return;
	ca_tree_remove(&model->recorded, &mark->node);
	ca_objects_put(&model->marks, mark);
	model->sums.marks--;
}

static int
synchronize_as(struct ca_model *model, enum ca_model_function function, void *context)
{
	int r;

	CA_MODEL_CALL(model, function);
	r = ca_model_begin_in(model, function, context);
	if (!r && model->capturing)
		r = -EBUSY;
	if (!r)
		ca_model_finish_all(model);
	return r;
}

int
ca_model_synchronize(void *self, void *context)
{
	return synchronize_as(self, CA_MODEL_SYNCHRONIZE, context);
}

/* Pretend streams are of no context in particular: it waits for more than it must. */
int
ca_model_context_synchronize(void *self, void *context)
{
	return synchronize_as(self, CA_MODEL_CONTEXT_SYNCHRONIZE, context);
}
