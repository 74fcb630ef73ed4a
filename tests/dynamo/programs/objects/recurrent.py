"""Recurrent layers, and modules and parameters made by the captured code."""

from tests.dynamo.programs import ONE, Family

FAMILY = Family(backends=ONE)
PROGRAMS = {
    "lstm": (
        1,
        "",
        """
        m = nn.LSTM(3, 4)
        def f(x): return m(x)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "lstm_grad": (
        1,
        "",
        """
        m = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        def f(x):
            o, (h, c) = m(x)
            return o * 2, h, c
        ---
        o, h, c = run(T(2, 5, 3, grad=True))
        (o.sum() + h.sum()).backward()
        m.weight_ih_l0.grad
        """,
    ),
    "lstm_states": (
        2,
        "",
        """
        m = nn.LSTM(3, 4)
        def f(x, h, c): return m(x, (h, c))
        ---
        run(T(5, 2, 3), T(1, 2, 4), T(1, 2, 4))
        run(T(5, 3), T(1, 4), T(1, 4))
        """,
    ),
    "lstm_proj": (
        1,
        "",
        """
        m = nn.LSTM(3, 4, proj_size=2).eval()
        def f(x): return m(x)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "lstm_dropout_eval": (
        1,
        "",
        """
        m = nn.LSTM(3, 4, 2, dropout=0.5).eval()
        def f(x): return m(x)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "lstm_dropout_train": (
        1,
        "",
        """
        m = nn.LSTM(3, 4, 2, dropout=0.5)
        def f(x): return m(x)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "gru": (
        1,
        "",
        """
        m = nn.GRU(3, 4, 2, bidirectional=True)
        def f(x): return m(x)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "rnn": (
        1,
        "",
        """
        m = nn.RNN(3, 4, nonlinearity='relu', batch_first=True)
        m2 = nn.RNN(3, 4)
        def f(x, h): return m(x), m2(x, h)
        ---
        run(T(5, 2, 3), T(1, 2, 4))
        """,
    ),
    "cells": (
        1,
        "",
        """
        a, b, c = nn.LSTMCell(3, 4), nn.GRUCell(3, 4), nn.RNNCell(3, 4)
        def f(x):
            h, cc = a(x)
            return h, cc, b(x, h), c(x), a(x, (h, cc))
        ---
        run(T(2, 3))
        """,
    ),
    "packed": (
        1,
        "",
        """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        m = nn.LSTM(3, 4, batch_first=True)
        def f(x, lens):
            p = pack_padded_sequence(x, lens, batch_first=True, enforce_sorted=False)
            o, (h, c) = m(p)
            y, l = pad_packed_sequence(o, batch_first=True)
            return y * 2, l, h
        ---
        run(T(2, 5, 3), torch.tensor([5, 3]))
        """,
    ),
    "packed_in": (
        1,
        "DYNAMIC_SHAPE_OP",
        """
        from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
        m = nn.GRU(3, 4, batch_first=True)
        p = pack_padded_sequence(T(2, 5, 3), torch.tensor([5, 3]), batch_first=True)
        def f(p):
            o, h = m(p)
            return o.data + 1, h
        ---
        run(p)
        """,
    ),
    "packed_by_keyword": (
        1,
        "DYNAMIC_SHAPE_OP",
        """
        from torch.nn.utils.rnn import pack_sequence
        m = nn.LSTM(2, 3, num_layers=2)
        p = pack_sequence([T(3, 2), T(2, 2)])
        def f(p):
            o, (h, c) = m(input=p)
            return o.data + 1, h, c
        ---
        run(p)
        """,
    ),
    "rnn_badshape": (
        2,
        "",
        """
        m = nn.LSTM(3, 4)
        def f(x):
            try: return m(x)
            except (RuntimeError, ValueError) as e: return str(e), x + 1
        ---
        run(T(5, 2, 7))
        run(T(5, 2, 7, 7))
        """,
    ),
    "lstm_custom": (
        1,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.emb = nn.Embedding(10, 3)
                self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True)
                self.fc = nn.Linear(8, 2)
            def forward(self, t):
                o, _ = self.lstm(self.emb(t))
                return self.fc(o[:, -1])
        m = Net()
        def f(t): return m(t)
        ---
        run(torch.arange(6).reshape(2, 3))
        """,
    ),
    "module_inside_linear": (
        1,
        "",
        """
        def f(x):
            l = nn.Linear(3, 4)
            return l(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "module_inside_seq": (
        1,
        "",
        """
        def f(x):
            l = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Conv1d(1, 1, 1) if False else nn.Identity())
            return l(x), l
        ---
        run(T(2, 3))
        """,
    ),
    "module_inside_user": (
        1,
        "",
        """
        class Net(nn.Module):
            def __init__(self, n):
                super().__init__()
                self.l = nn.Linear(n, n)
                self.register_buffer('b', torch.ones(n))
                self.w = nn.Parameter(torch.zeros(n))
                nn.init.xavier_uniform_(self.l.weight)
            def forward(self, x): return self.l(x) + self.b + self.w
        def f(x):
            n = Net(3)
            return n(x).sum(), n
        ---
        y, n = run(T(2, 3))
        y.backward()
        n.l.weight.grad
        """,
    ),
    "module_inside_noparam": (
        1,
        "",
        """
        def f(x):
            return nn.ReLU()(x) + nn.Softmax(dim=-1)(x) + nn.Sequential(nn.GELU(), nn.Tanh())(x)
        ---
        run(T(2, 3))
        """,
    ),
    "dropout_lstm": (
        2,
        "",
        """
        m = nn.LSTM(3, 4, 2, dropout=0.3, batch_first=True)
        def f(x): return m(x)[0]
        ---
        run(T(2, 5, 3))
        run(T(2, 5, 3))
        m.eval()
        run(T(2, 5, 3))
        """,
    ),
    "rnn_loop": (
        2,
        "",
        """
        c = nn.LSTMCell(3, 4)
        def f(x):
            h = c2 = torch.zeros(2, 4)
            out = []
            for t in range(x.size(0)):
                h, c2 = c(x[t], (h, c2))
                out.append(h)
            return torch.stack(out), c2
        ---
        run(T(4, 2, 3)).__class__
        run(T(4, 2, 3, grad=True))[0].sum().backward()
        c.weight_ih.grad
        """,
    ),
    "gru_unbatched": (
        1,
        "",
        """
        m = nn.GRU(3, 4, bidirectional=True)
        def f(x, h): return m(x, h)
        ---
        run(T(5, 3), T(2, 4))
        """,
    ),
    "rnn_flatten": (
        1,
        "",
        """
        m = nn.LSTM(3, 4)
        def f(x):
            m.flatten_parameters()
            return m(x)[0], m.all_weights[0][0].shape, len(m._flat_weights)
        ---
        run(T(5, 2, 3))
        """,
    ),
    "rnn_weights_change": (
        2,
        "",
        """
        m = nn.GRU(3, 4)
        def f(x): return m(x)[0]
        ---
        run(T(5, 2, 3))
        m.weight_ih_l0.data.mul_(2)
        run(T(5, 2, 3))
        m.weight_hh_l0 = nn.Parameter(torch.ones(12, 4))
        run(T(5, 2, 3))
        """,
    ),
    "made_bn": (
        1,
        "",
        """
        def f(x):
            l = nn.BatchNorm1d(3)
            y = l(x)
            return y, l, l.num_batches_tracked
        ---
        run(T(2, 3))
        run(T(2, 3))
        """,
    ),
    "made_after_random": (
        2,
        "UNCAPTURED_CALL",
        """
        def f(x):
            x = x + torch.rand(3)
            l = nn.Linear(3, 2)
            return l(x), torch.rand(2)
        ---
        run(T(2, 3))
        """,
    ),
    "made_before_random": (
        1,
        "",
        """
        def f(x):
            l = nn.Linear(3, 2)
            x = x + torch.rand(3)
            return l(x), torch.rand(2)
        ---
        run(T(2, 3))
        """,
    ),
    "made_stored": (
        2,
        "",
        """
        class H: pass
        h = H()
        def f(x):
            if not hasattr(h, 'l'): h.l = nn.Linear(3, 2)
            return h.l(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        h.l
        """,
    ),
    "made_two": (
        1,
        "",
        """
        def f(x):
            a, b = nn.Linear(3, 3), nn.Linear(3, 3)
            b.weight = a.weight
            return b(a(x)), a, b, a.weight is b.weight
        ---
        run(T(2, 3))
        """,
    ),
    "made_break": (
        2,
        "REQUESTED_BREAK",
        """
        def f(x):
            a = nn.Linear(3, 3)
            y = a(x)
            torch._dynamo.graph_break()
            return a(y), a
        ---
        y, a = run(T(2, 3))
        y.sum().backward()
        a.weight.grad
        """,
    ),
    "made_lazy_attr": (
        2,
        "",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.l = None
            def forward(self, x):
                if self.l is None: self.l = nn.Linear(3, 3)
                return self.l(x)
        m = Net()
        def f(x): return m(x)
        ---
        run(T(2, 3))
        run(T(2, 3))
        m
        """,
    ),
    "made_kwargs": (
        1,
        "",
        """
        def f(x):
            a = nn.Conv1d(2, 3, kernel_size=1, bias=False, dtype=torch.float64)
            return a(x.double()), a.weight.dtype
        ---
        run(T(2, 2, 4))
        """,
    ),
    "made_error": (
        1,
        "",
        """
        def f(x):
            y = x + 1
            try: nn.Conv1d(2, 3, 1, groups=5)
            except ValueError as e: return y, str(e)
        ---
        run(T(2, 2, 4))
        """,
    ),
    "made_lstm": (
        1,
        "",
        """
        def f(x):
            return nn.LSTM(3, 2)(x)
        ---
        run(T(2, 2, 3))
        """,
    ),
    "made_loop": (
        1,
        "",
        """
        def f(x):
            for i in range(3):
                x = nn.Linear(3, 3)(x)
            return x
        ---
        run(T(2, 3))
        """,
    ),
    "made_list": (
        1,
        "",
        """
        def f(x):
            ls = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
            for l in ls: x = l(x)
            return x, ls, list(ls.state_dict())
        ---
        run(T(2, 3))
        """,
    ),
    "made_args": (
        2,
        "",
        """
        def f(x, n):
            return nn.Linear(n, n)(x)
        ---
        run(T(2, 3), 3)
        run(T(2, 4), 4)
        """,
    ),
    "param_shares": (
        1,
        "",
        """
        def f(x):
            w = torch.ones(3)
            p = nn.Parameter(w)
            w.mul_(2)
            return p, w, (p * x).sum()
        ---
        p, w, l = run(T(3))
        l.backward()
        p.grad
        """,
    ),
    "param_flags": (
        0,
        "",
        """
        def f(x):
            p = nn.Parameter(torch.zeros(3), requires_grad=False)
            q = nn.Parameter(torch.randn(3), False)
            return p, q, p.requires_grad, isinstance(p, nn.Parameter), type(q).__name__
        ---
        run(T(3))
        """,
    ),
    "param_of_input": (
        1,
        "",
        """
        def f(x):
            y = x * 2
            p = nn.Parameter(x)
            return p, y, p + 1
        ---
        run(T(3))
        """,
    ),
    "buffer_factory": (
        1,
        "",
        """
        def f(x):
            b = nn.Buffer(torch.ones(3), persistent=False)
            return b, isinstance(b, nn.Buffer), b.persistent, b + x
        ---
        run(T(3))
        """,
    ),
    "param_default_dtype": (
        1,
        "UNCAPTURED_CALL",
        """
        def f(x):
            torch.set_default_dtype(torch.float64)
            l = nn.Linear(3, 3)
            torch.set_default_dtype(torch.float32)
            return x + 1, l.weight.dtype, nn.Linear(2, 2).weight.dtype
        ---
        run(T(3))
        """,
    ),
    "param_device_ctx": (
        5,
        "UNCAPTURED_CALL",
        """
        def f(x):
            with torch.device('meta'):
                l = nn.Linear(3, 3)
            return x + 1, l.weight.device.type
        ---
        run(T(3))
        """,
    ),
    "made_nograd": (
        1,
        "",
        """
        def f(x):
            with torch.no_grad():
                l = nn.Linear(3, 3)
                y = l(x)
            return y, l.weight.requires_grad
        ---
        run(T(3))
        """,
    ),
    "made_seeded": (
        1,
        "",
        """
        def f(x):
            torch.manual_seed(3)
            l = nn.Linear(3, 3)
            return l(x)
        ---
        run(T(3))
        """,
    ),
    "made_init": (
        1,
        "",
        """
        def f(x):
            l = nn.Linear(3, 3)
            nn.init.zeros_(l.bias)
            nn.init.normal_(l.weight)
            with torch.no_grad(): l.weight.mul_(2)
            return l(x), l
        ---
        run(T(3))
        """,
    ),
    "made_module_in_user": (
        1,
        "",
        """
        class Block(nn.Module):
            def __init__(self, n, act=nn.ReLU):
                super().__init__()
                self.net = nn.Sequential(nn.Linear(n, n), act(), nn.Linear(n, n))
                self.scale = nn.Parameter(torch.ones(n))
                self.register_buffer('k', torch.arange(n))
            def forward(self, x): return self.net(x) * self.scale + self.k
        def f(x):
            b = Block(3).eval()
            return b(x), sum(p.numel() for p in b.parameters()), [n for n, _ in b.named_parameters()], b
        ---
        y, _, _, b = run(T(2, 3))
        y.sum().backward()
        b.scale.grad
        """,
    ),
}
