#!/usr/bin/env python3
"""The command line without any daemon: usage, help, options, JSON."""
import json
import os

import tap
from lochos_process import LochosTest, run

COMMANDS = ('directory', 'node', 'put', 'get', 'ls', 'stat', 'rm', 'wait', 'reduce', 'info', 'doctor',
            'perf', 'demo')


class Usage(LochosTest):
    def test_no_command(self):
        self.assert_usage_error(run(), '--help')

    def test_unknown_command(self):
        self.assert_usage_error(run('teleport'), 'teleport')

    def test_unknown_option(self):
        self.assert_usage_error(run('ls', '--colour'), '--colour', "'lochos ls --help'")

    def test_missing_arguments(self):
        self.assert_usage_error(run('put', 'x'), 'FILE')
        self.assert_usage_error(run('get'), 'NAME')
        self.assert_usage_error(run('wait'), 'NAME')
        self.assert_usage_error(run('stat'), 'NAME')
        self.assert_usage_error(run('rm'), 'NAME')
        self.assert_usage_error(run('reduce'), 'TARGET')
        self.assert_usage_error(run('reduce', 't'), 'SOURCE')

    def test_too_many_arguments(self):
        self.assert_usage_error(run('stat', 'a', 'b'), 'b')

    def test_help_of_each_command(self):
        whole = run('--help').stdout.decode()
        for command in COMMANDS:
            result = run(command, '--help')
            self.assertEqual(result.returncode, 0, command)
            self.assertEqual(result.stderr, b'')
            self.assertIn(command, whole)
            self.assertIn('--help', result.stdout.decode())

    def test_help_names_the_other_ways_to_set_an_option(self):
        text = run('node', '--help').stdout.decode()
        for variable in ('LOCHOS_DIRECTORY', 'LOCHOS_POOL', 'LOCHOS_TRANSPORT', 'LOCHOS_SOCKET'):
            self.assertIn(variable, text)

    def test_version(self):
        result = run('--version')
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout.decode(), r'^lochos \d+\.\d+\.\d+\n$')

    def test_bad_sizes_and_durations(self):
        directory = ('--directory', '127.0.0.1:1')
        for size in ('', '-1', '4X', '1e3', '9999999T', '4 G'):
            self.assert_usage_error(run('node', *directory, '--pool', size), '--pool')
        for duration in ('soon', '-5s', '1y', '10000000h'):
            self.assert_usage_error(run('ls', '--timeout', duration), '--timeout')

    def test_bad_transport(self):
        self.assert_usage_error(
            run('node', '--directory', '127.0.0.1:1', '--transport', 'udp'), 'auto, verbs or tcp')

    def test_node_needs_a_directory(self):
        self.assert_usage_error(run('node'), '--directory', 'LOCHOS_DIRECTORY')

    def test_bad_addresses(self):
        for address, part in (('::1:7777', '[::1]:7777'), ('10.0.0.1', 'PORT'),
                              ('10.0.0.1:99999', 'port'), ('[10.0.0.1]:1', 'bracket'),
                              ('[::1', "']'"), (':7777', 'host'), ('', '')):
            result = run('directory', '--listen', address)
            self.assertEqual(result.returncode, 2, (address, result.stderr))
            self.assertIn(part, result.stderr.decode())
        self.assert_usage_error(run('node', '--directory', '::1:7777'), '[::1]:7777')

    def test_bad_names(self):
        for name in ('', 'x' * 1025, b'\xff\xfe'):
            result = run('put', name, '/dev/null', '--socket', self.path('none'))
            self.assert_usage_error(result, '1024')

    def test_wait_count_above_names(self):
        self.assert_usage_error(run('wait', 'a', '--count', '2'), '--count')
        self.assert_usage_error(run('wait', 'a', '--count', '0'), '--count')

    def test_reduces_that_cannot_be(self):
        nowhere = ('--socket', self.path('none'))
        for arguments, part in ((('t', 'a', 'b', 'a'), "'a'"),
                                (('t', 'a', 't'), 'target'),
                                (('t', 'a', '--op', 'median'), 'sum'),
                                (('t', 'a', '--dtype', 'f8'), 'bf16'),
                                (('t', 'a', '--op', 'bxor'), 'integers'),
                                (('t', 'a', '--op', 'avg', '--dtype', 'i32'), 'floating'),
                                (('t', 'a', '--count', '2'), '--count'),
                                (('t', 'a', '--count', '0'), '--count'),
                                (('t', 'a', '--count', '-1'), '--count'),
                                (('', 'a'), '1024'),
                                (('t', 'x' * 1025), '1024')):
            self.assert_usage_error(run('reduce', *arguments, *nowhere), part)

    def test_reduce_without_a_node(self):
        socket = self.path('none.sock')
        for more in ((), ('--count', '1'), ('--op', 'mean'), ('--dtype', 'float64'),
                     ('--deterministic', '--json')):
            result = run('reduce', 't', 'a', 'b', *more, '--socket', socket, '--timeout', '2s')
            self.assert_error(result, 1, socket, 'lochos node')

    def test_help_of_reduce_names_operations_and_types(self):
        text = run('reduce', '--help').stdout.decode()
        for word in ('sum', 'avg', 'bxor', 'bf16', 'u64', '--count', '--deterministic', '--json',
                     'LOCHOS_TIMEOUT'):
            self.assertIn(word, text)

    def test_no_node(self):
        socket = self.path('none.sock')
        result = run('ls', '--socket', socket, '--timeout', '2s')
        self.assert_error(result, 1, socket, 'lochos node')

    def test_missing_file(self):
        self.assert_error(run('put', 'x', self.path('none')), 1, self.path('none'))


class Configuration(LochosTest):
    def values(self, *arguments, env=None):
        result = run(*arguments, 'info', '--config', '--json', env=env)
        self.assertEqual(result.returncode, 0, result.stderr)
        shown = json.loads(result.stdout)
        return {option['key']: option for option in shown['options']}, shown['file']

    def write(self, text):
        path = self.path('lochos.toml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text)
        return path

    def test_each_origin(self):
        path = self.write('timeout = "7s"\n[node]\npool = "1G"\nname = "filed"\n')
        values, file = self.values('--config', path, env={'LOCHOS_NAME': 'from-env'})
        self.assertEqual(file, path)
        self.assertEqual((values['timeout']['value'], values['timeout']['where']),
                         ('7s', f'{path}:1'))
        self.assertEqual((values['node.name']['value'], values['node.name']['where']),
                         ('from-env', 'LOCHOS_NAME'))
        self.assertEqual(values['node.pool']['origin'], 'file')
        self.assertEqual(values['node.transport']['origin'], 'default')

    def test_flag_wins(self):
        result = run('info', '--config', '--json', '--pool', '3G', env={'LOCHOS_POOL': '2G'})
        values = {o['key']: o for o in json.loads(result.stdout)['options']}
        self.assertEqual((values['node.pool']['value'], values['node.pool']['where']),
                         ('3G', '--pool'))

    def test_table_for_people(self):
        text = run('info', '--config', env={'LOCHOS_POOL': '2G'}).stdout.decode()
        self.assertRegex(text, r'node\.pool +2G +LOCHOS_POOL')

    def test_default_places(self):
        os.makedirs(self.path('lochos'))
        with open(self.path('lochos/lochos.toml'), 'w', encoding='utf-8') as file:
            file.write('timeout = "9s"\n')
        values, _ = self.values(env={'XDG_CONFIG_HOME': self.folder, 'LOCHOS_CONFIG': ''})
        self.assertEqual(values['timeout']['value'], '9s')

    def test_unknown_key(self):
        path = self.write('[node]\npol = "1G"\n')
        self.assert_usage_error(run('--config', path, 'ls'), f'{path}:2', 'node.pool')

    def test_bad_variable(self):
        self.assert_usage_error(run('ls', env={'LOCHOS_TIMEOUT': 'x'}), 'LOCHOS_TIMEOUT')

    def test_missing_file(self):
        self.assert_usage_error(run('--config', '/nonexistent.toml', 'ls'), '/nonexistent.toml')


class Host(LochosTest):
    def test_info(self):
        result = run('info', '--socket', self.path('none'))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('lo', result.stdout.decode())
        shown = json.loads(run('info', '--json', '--socket', self.path('none')).stdout)
        self.assertIn('lo', [interface['name'] for interface in shown['interfaces']])
        self.assertIsNone(shown['node'])
        if not shown['rdma_ports']:
            self.assertTrue(shown['no_rdma_reason'])

    def test_info_of_an_interface_that_is_not(self):
        result = run('info', '--interface', 'nosuchif0')
        self.assertEqual(result.returncode, 2)
        self.assertIn('lo', result.stderr.decode())

    def test_doctor(self):
        result = run('doctor', '--json', '--pool', '16M', '--socket', self.path('none'))
        shown = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if shown['ok'] else 1)
        for check in shown['checks']:
            self.assertIn(check['verdict'], ('ok', 'warn', 'fail'))
            if check['verdict'] != 'ok':
                self.assertTrue(check['fix'], check)

    def test_doctor_fails_for_a_pool_that_cannot_be(self):
        result = run('doctor', '--pool', '900T', '--socket', self.path('none'))
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout.decode(), r'fail +pool memory')

    def test_doctor_finds_a_dead_directory_and_a_slip(self):
        result = run('doctor', '--pool', '16M', '--directory', '127.0.0.1:1', '--socket',
                     self.path('none'), env={'LOCHOS_POOOL': '1'})
        text = result.stdout.decode()
        self.assertEqual(result.returncode, 1)
        self.assertRegex(text, r'fail +directory +127\.0\.0\.1:1')
        self.assertIn('did you mean LOCHOS_POOL?', text)


if __name__ == '__main__':
    tap.main()
